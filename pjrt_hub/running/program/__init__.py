"""What is compiled: programs in each form, read without MLIR, and compile options."""
