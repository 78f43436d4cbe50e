"""Real clients as referees: programs that people use, against scripted providers on this machine."""
