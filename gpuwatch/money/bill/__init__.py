"""The cloud's bill compared with gpuwatch's own records."""
