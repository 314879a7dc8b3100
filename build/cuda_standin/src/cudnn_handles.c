/* cuDNN: version, handles and the descriptors of its older interface, which are kept and given back. */
#include "cudnn_legacy.h"
#include <stdio.h>
#include <stdlib.h>

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
size_t cudnnGetCudartVersion(void) { return STANDIN_CUDA_VERSION; }

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int *value) {
	*value = type == MAJOR_VERSION ? CUDNN_MAJOR : type == MINOR_VERSION ? CUDNN_MINOR : CUDNN_PATCHLEVEL;
	return CUDNN_STATUS_SUCCESS;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
	return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_NOT_SUPPORTED (stand-in)";
}

void cudnnGetLastErrorString(char *text, size_t size) {
	if (size) snprintf(text, size, "not supported by the stand-in cuDNN");
}

struct cudnnContext {
	cudaStream_t stream;
};

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
	*handle = calloc(1, sizeof **handle);
	return *handle ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
	handle->stream = stream;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
	*stream = handle->stream;
	return CUDNN_STATUS_SUCCESS;
}

#define DESCRIPTOR(name, size)                                                                     \
	cudnnStatus_t cudnnCreate##name##Descriptor(cudnn##name##Descriptor_t *made) {             \
		*made = calloc(1, size);                                                           \
		return *made ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED; \
	}                                                                                          \
	cudnnStatus_t cudnnDestroy##name##Descriptor(cudnn##name##Descriptor_t made) {             \
		free(made);                                                                        \
		return CUDNN_STATUS_SUCCESS;                                                       \
	}
DESCRIPTOR(Tensor, sizeof(struct cudnnTensorStruct))
DESCRIPTOR(Filter, sizeof(struct cudnnFilterStruct))
DESCRIPTOR(RNN, sizeof(struct cudnnRNNStruct))
DESCRIPTOR(RNNData, sizeof(struct cudnnRNNDataStruct))
DESCRIPTOR(Activation, 1)
DESCRIPTOR(Convolution, 1)
DESCRIPTOR(CTCLoss, 1)
DESCRIPTOR(Dropout, 1)
DESCRIPTOR(Pooling, 1)
DESCRIPTOR(SpatialTransformer, 1)

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int rank,
					 const int sizes[], const int strides[]) {
	if (rank > CUDNN_DIM_MAX) return CUDNN_STATUS_NOT_SUPPORTED;
	tensor->type = type;
	tensor->rank = rank;
	for (int i = 0; i < rank; i++) tensor->sizes[i] = sizes[i], tensor->strides[i] = strides[i];
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t tensor, int wanted, cudnnDataType_t *type,
					 int *rank, int sizes[], int strides[]) {
	*type = tensor->type;
	*rank = tensor->rank;
	for (int i = 0; i < wanted && i < tensor->rank; i++) sizes[i] = tensor->sizes[i], strides[i] = tensor->strides[i];
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
					 cudnnTensorFormat_t format, int rank, const int sizes[]) {
	if (rank > CUDNN_DIM_MAX) return CUDNN_STATUS_NOT_SUPPORTED;
	filter->type = type;
	filter->format = format;
	filter->rank = rank;
	for (int i = 0; i < rank; i++) filter->sizes[i] = sizes[i];
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetFilterNdDescriptor(const cudnnFilterDescriptor_t filter, int wanted, cudnnDataType_t *type,
					 cudnnTensorFormat_t *format, int *rank, int sizes[]) {
	*type = filter->type;
	*format = filter->format;
	*rank = filter->rank;
	for (int i = 0; i < wanted && i < filter->rank; i++) sizes[i] = filter->sizes[i];
	return CUDNN_STATUS_SUCCESS;
}

/* State of the generator for dropout between recurrent layers, as a T4 has it. */
cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *bytes) {
	*bytes = 960 << 10;
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t no_bytes(size_t *bytes) {
	*bytes = 0;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
	cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const cudnnTensorDescriptor_t x,
	const cudnnTensorDescriptor_t z, const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t scale,
	const cudnnActivationDescriptor_t activation, size_t *bytes) {
	return no_bytes(bytes);
}

cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
	cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const cudnnTensorDescriptor_t x,
	const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t dy, const cudnnTensorDescriptor_t dz,
	const cudnnTensorDescriptor_t dx, const cudnnTensorDescriptor_t scale,
	const cudnnActivationDescriptor_t activation, size_t *bytes) {
	return no_bytes(bytes);
}

cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnnHandle_t handle, cudnnBatchNormMode_t mode,
								   cudnnBatchNormOps_t ops,
								   const cudnnActivationDescriptor_t activation,
								   const cudnnTensorDescriptor_t x, size_t *bytes) {
	return no_bytes(bytes);
}
