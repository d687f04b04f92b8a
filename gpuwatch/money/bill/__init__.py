"""The cloud's bill beside gpuwatch's own records."""
