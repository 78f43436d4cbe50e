"""How an item is stored in a row: its payload as Open Responses sends it, and an overlay of everything else."""
