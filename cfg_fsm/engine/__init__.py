"""The engine: takes events in, moves machines, answers with actions. Sans-I/O."""
