/* The wheels bring the toolkit's headers without this file, which checks nvcc's host compiler. */
