/* The workspace of a convolution: the one size here that only cuDNN's own heuristics know. A rule stands in for them.
 *
 * 16-bit convolutions run on tensor cores, whose kernels want channels last: each of x, w and y that lies otherwise is
 * copied. Fewer than 8 channels take kernels without copies. 32-bit ones need a small table in the forward pass.
 */
#include "cudnn_attributes.h"

#define CHANNELS_OF_TENSOR_CORES 8
#define TABLE_BYTES 16384

static int64_t element_bytes(cudnnDataType_t type) {
	switch (type) {
	case CUDNN_DATA_DOUBLE: return 8;
	case CUDNN_DATA_HALF:
	case CUDNN_DATA_BFLOAT16: return 2;
	default: return 4;
	}
}

static cudnnDataType_t type_of(const struct descriptor *tensor) {
	struct attribute *type = attribute_find(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE);
	return type ? *(cudnnDataType_t *)type->values : CUDNN_DATA_FLOAT;
}

static int64_t tensor_bytes(const struct descriptor *tensor) {
	struct attribute *sizes = attribute_find(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS);
	int64_t bytes = element_bytes(type_of(tensor));
	for (int64_t i = 0; sizes && i < sizes->count; i++) bytes *= ((int64_t *)sizes->values)[i];
	return bytes;
}

static int64_t second(const struct descriptor *tensor, cudnnBackendAttributeName_t name) {
	struct attribute *values = attribute_find(tensor, name);
	return values && values->count > 1 ? ((int64_t *)values->values)[1] : 0;
}

static int channels_last(const struct descriptor *tensor) {
	return second(tensor, CUDNN_ATTR_TENSOR_STRIDES) == 1 && second(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS) != 1;
}

struct operands {
	struct descriptor *x, *w, *y;
};

/* 0 where the operation is no convolution. */
static int operands_of(const struct descriptor *operation, struct operands *found) {
	cudnnBackendAttributeName_t x, w, y;
	switch (operation->type) {
	case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
		x = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, w = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
		y = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y;
		break;
	case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
		x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
		y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY;
		break;
	case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
		x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
		y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY;
		break;
	default: return 0;
	}
	*found = (struct operands){attribute_descriptor(operation, x), attribute_descriptor(operation, w),
				   attribute_descriptor(operation, y)};
	return found->x && found->w && found->y;
}

int64_t workspace_of(const struct descriptor *graph) {
	struct descriptor *operation = attribute_descriptor(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
	struct operands o;
	if (!operation || !operands_of(operation, &o)) return 0;
	if (element_bytes(type_of(o.x)) != 2)
		return operation->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ? TABLE_BYTES : 0;
	if (channels_last(o.x) || second(o.x, CUDNN_ATTR_TENSOR_DIMENSIONS) < CHANNELS_OF_TENSOR_CORES) return 0;
	return tensor_bytes(o.x) + tensor_bytes(o.w) + tensor_bytes(o.y);
}
