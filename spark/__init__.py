"""The checks of a run's history on Spark: at-least-once delivery proved from tables and disks."""
