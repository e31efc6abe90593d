"""What a start trusts: checkpoints, directories, stores of RocketMQ, repair while it runs."""
