"""`gpuwatch top`: this host's GPUs, who uses them and why they count as busy or idle, on a terminal."""
