/* Descriptors of cuDNN's graph interface as a store of attributes. */
#ifndef STANDIN_CUDNN_ATTRIBUTES_H
#define STANDIN_CUDNN_ATTRIBUTES_H
#include <cudnn.h>
#include <stdint.h>

struct attribute {
	struct attribute *next;
	cudnnBackendAttributeName_t name;
	cudnnBackendAttributeType_t type;
	int64_t count;
	void *values;
};

/* Counted, as the library copies what is set: a caller may destroy what another descriptor still names. */
struct descriptor {
	cudnnBackendDescriptorType_t type;
	int references;
	int64_t workspace; /* of an engine's configuration and its plan */
	struct attribute *attributes;
};

struct descriptor *descriptor_new(cudnnBackendDescriptorType_t type);
void descriptor_release(struct descriptor *descriptor);
struct attribute *attribute_find(const struct descriptor *descriptor, cudnnBackendAttributeName_t name);
int attribute_set(struct descriptor *descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
		  int64_t count, const void *values);
int64_t attribute_bytes(const struct attribute *attribute, int64_t most);

/* The first descriptor among an attribute's values, or NULL. */
struct descriptor *attribute_descriptor(const struct descriptor *descriptor, cudnnBackendAttributeName_t name);

/* Bytes that a graph's engine asks for beside its inputs and outputs. */
int64_t workspace_of(const struct descriptor *graph);
#endif
