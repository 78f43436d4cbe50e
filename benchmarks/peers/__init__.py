"""Other libraries that store conversations, measured beside threadkeep in one run: ``python -m benchmarks.peers``.

Each module with a class `Adapter` makes one of them do what `protocol` describes, through its public interface.
"""
