"""The chaos harness: workload, faults, history, checkers and reports. A black-box tester."""
