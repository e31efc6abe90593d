"""What a broker is made of below its protocol: a Raft group's member, or a log on its own."""
