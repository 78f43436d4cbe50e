"""What threadkeep costs beside hand-written SQL on the bare drivers: ``python -m benchmarks``.

Each module named after a goal measures it; all of them take turns with the floor in the same rounds.
"""
