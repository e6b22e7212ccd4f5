"""Front end for CUDA C++."""
