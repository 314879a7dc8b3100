/* Contents of the descriptors that cuDNN's older interface gives back. */
#ifndef STANDIN_CUDNN_LEGACY_H
#define STANDIN_CUDNN_LEGACY_H
#include <cudnn.h>

struct cudnnTensorStruct {
	cudnnDataType_t type;
	int rank, sizes[CUDNN_DIM_MAX], strides[CUDNN_DIM_MAX];
};

struct cudnnFilterStruct {
	cudnnDataType_t type;
	cudnnTensorFormat_t format;
	int rank, sizes[CUDNN_DIM_MAX];
};

struct cudnnRNNStruct {
	cudnnRNNMode_t cell;
	cudnnRNNBiasMode_t biases;
	cudnnDirectionMode_t direction;
	cudnnDataType_t type;
	int input, hidden, projected, layers;
};

struct cudnnRNNDataStruct {
	int steps, batch, width;
};
#endif
