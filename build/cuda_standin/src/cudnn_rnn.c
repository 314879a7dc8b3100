/* Recurrent layers: where the weights lie is documented, and torch makes its parameters' views by it.
 *
 * What an RNN needs while it runs is not: the sizes below are a rule that agrees with what cuDNN's own heuristics asked
 * for in trainings of four sizes.
 */
#include "cudnn_legacy.h"
#include <stddef.h>

cudnnStatus_t cudnnSetRNNDescriptor_v8(cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algorithm, cudnnRNNMode_t cell,
				       cudnnRNNBiasMode_t biases, cudnnDirectionMode_t direction,
				       cudnnRNNInputMode_t input_mode, cudnnDataType_t type,
				       cudnnDataType_t math_type, cudnnMathType_t math, int32_t input, int32_t hidden,
				       int32_t projected, int32_t layers, cudnnDropoutDescriptor_t dropout,
				       uint32_t flags) {
	*rnn = (struct cudnnRNNStruct){cell, biases, direction, type, input, hidden, projected, layers};
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t data, cudnnDataType_t type,
					cudnnRNNDataLayout_t layout, int steps, int batch, int width,
					const int lengths[], void *padding) {
	*data = (struct cudnnRNNDataStruct){steps, batch, width};
	return CUDNN_STATUS_SUCCESS;
}

static int gates(cudnnRNNDescriptor_t rnn) {
	return rnn->cell == CUDNN_LSTM ? 4 : rnn->cell == CUDNN_GRU ? 3 : 1;
}

static int directions(cudnnRNNDescriptor_t rnn) { return rnn->direction == CUDNN_BIDIRECTIONAL ? 2 : 1; }
static int projects(cudnnRNNDescriptor_t rnn) { return rnn->projected && rnn->projected != rnn->hidden; }
static int output(cudnnRNNDescriptor_t rnn) { return projects(rnn) ? rnn->projected : rnn->hidden; }

static size_t element_bytes(cudnnDataType_t type) {
	return type == CUDNN_DATA_DOUBLE ? 8 : type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ? 2 : 4;
}

/* Columns of one matrix of a pseudo-layer (a layer in one direction): input matrices come first, then recurrent ones. */
static size_t columns(cudnnRNNDescriptor_t rnn, int pseudo_layer, int matrix) {
	if (matrix >= gates(rnn)) return output(rnn);
	return pseudo_layer < directions(rnn) ? rnn->input : output(rnn) * directions(rnn);
}

static size_t layer_elements(cudnnRNNDescriptor_t rnn, int pseudo_layer, int matrices) {
	size_t elements = 0;
	for (int i = 0; i < matrices; i++) elements += rnn->hidden * columns(rnn, pseudo_layer, i);
	return elements;
}

/* Elements before a matrix; with the pseudo-layer after the last, those of all matrices. */
static size_t elements_before(cudnnRNNDescriptor_t rnn, int pseudo_layer, int matrix) {
	size_t elements = 0;
	for (int p = 0; p < pseudo_layer; p++) {
		elements += layer_elements(rnn, p, 2 * gates(rnn));
		if (projects(rnn)) elements += (size_t)rnn->projected * rnn->hidden;
	}
	return elements + layer_elements(rnn, pseudo_layer, matrix);
}

static size_t bias_sets(cudnnRNNDescriptor_t rnn) {
	return rnn->biases == CUDNN_RNN_NO_BIAS ? 0 : rnn->biases == CUDNN_RNN_DOUBLE_BIAS ? 2 : 1;
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, size_t *bytes) {
	int pseudo_layers = rnn->layers * directions(rnn);
	size_t biases = bias_sets(rnn) * (size_t)pseudo_layers * gates(rnn) * rnn->hidden;
	*bytes = (elements_before(rnn, pseudo_layers, 0) + biases) * element_bytes(rnn->type);
	return CUDNN_STATUS_SUCCESS;
}

/* torch asks for a matrix or for a bias, with NULL for the other. */
static void describe(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int rows, int columns) {
	if (!tensor) return;
	int sizes[] = {1, rows, columns}, strides[] = {rows * columns, columns, 1};
	cudnnSetTensorNdDescriptor(tensor, type, 3, sizes, strides);
}

static void set(void **pointer, void *value) {
	if (pointer) *pointer = value;
}

cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t pseudo_layer,
				      size_t size, const void *weights, int32_t matrix,
				      cudnnTensorDescriptor_t matrix_shape, void **matrix_start,
				      cudnnTensorDescriptor_t bias_shape, void **bias_start) {
	int pseudo_layers = rnn->layers * directions(rnn);
	size_t bytes = element_bytes(rnn->type);
	char *start = (char *)weights;
	set(matrix_start, NULL);
	set(bias_start, NULL);
	if (matrix >= 2 * gates(rnn) + projects(rnn)) return CUDNN_STATUS_SUCCESS;
	set(matrix_start, start + elements_before(rnn, pseudo_layer, matrix) * bytes);
	if (matrix == 2 * gates(rnn)) {
		describe(matrix_shape, rnn->type, rnn->projected, rnn->hidden);
		return CUDNN_STATUS_SUCCESS;
	}
	describe(matrix_shape, rnn->type, rnn->hidden, (int)columns(rnn, pseudo_layer, matrix));
	if (!bias_sets(rnn)) return CUDNN_STATUS_SUCCESS;
	size_t biases_before = ((size_t)pseudo_layer * 2 * gates(rnn) + matrix) * rnn->hidden;
	describe(bias_shape, rnn->type, rnn->hidden, 1);
	set(bias_start, start + (elements_before(rnn, pseudo_layers, 0) + biases_before) * bytes);
	return CUDNN_STATUS_SUCCESS;
}

/* A rule of four trainings with bidirectional LSTMs (512 and 1024 wide, 4 and 5 layers, fp32 and fp16) in which cuDNN's
 * own heuristics were asked: it is within 0.8 % of their peaks. For a backward pass every unit keeps its gates and its
 * cell, layers what they hand on, and each layer 128 rows more. To run, it takes a copy of the weights, the gates of a
 * layer twice, and 64 MiB. What a GRU or a plain RNN needs follows from that, not from a measurement. */
#define ROWS_OF_A_LAYER 128
#define FIXED_WORKSPACE ((size_t)64 << 20)

cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode,
					cudnnRNNDataDescriptor_t x, size_t *workspace, size_t *reserve) {
	size_t rows = (size_t)x->steps * x->batch, width = (size_t)directions(rnn) * rnn->hidden;
	size_t bytes = element_bytes(rnn->type), weights;
	cudnnGetRNNWeightSpaceSize(handle, rnn, &weights);
	size_t kept = gates(rnn) > 1 ? gates(rnn) + 1 : 1;
	if (workspace) *workspace = weights + 2 * bytes * rows * width * gates(rnn) + FIXED_WORKSPACE;
	if (reserve)
		*reserve = bytes * width * (rows * (rnn->layers * kept + rnn->layers - 1) + ROWS_OF_A_LAYER * rnn->layers);
	return CUDNN_STATUS_SUCCESS;
}
