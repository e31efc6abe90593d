"""The only code that touches the machine: clock, disk, configuration files, logging, process."""
