#include "cudnn_attributes.h"
#include <stdlib.h>
#include <string.h>

struct descriptor *descriptor_new(cudnnBackendDescriptorType_t type) {
	struct descriptor *made = calloc(1, sizeof *made);
	if (made) made->type = type, made->references = 1;
	return made;
}

static size_t width(cudnnBackendAttributeType_t type) {
	switch (type) {
	case CUDNN_TYPE_BOOLEAN:
	case CUDNN_TYPE_CHAR: return 1;
	case CUDNN_TYPE_HANDLE:
	case CUDNN_TYPE_INT64:
	case CUDNN_TYPE_DOUBLE:
	case CUDNN_TYPE_VOID_PTR:
	case CUDNN_TYPE_BACKEND_DESCRIPTOR:
	case CUDNN_TYPE_FRACTION: return 8;
	default: return 4;
	}
}

int64_t attribute_bytes(const struct attribute *attribute, int64_t most) {
	return (attribute->count < most ? attribute->count : most) * (int64_t)width(attribute->type);
}

static void drop_values(struct attribute *attribute) {
	if (attribute->type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
		for (int64_t i = 0; i < attribute->count; i++)
			descriptor_release(((struct descriptor **)attribute->values)[i]);
	free(attribute->values);
}

void descriptor_release(struct descriptor *descriptor) {
	if (!descriptor || --descriptor->references) return;
	for (struct attribute *a = descriptor->attributes, *next; a; a = next) {
		next = a->next;
		drop_values(a);
		free(a);
	}
	free(descriptor);
}

struct attribute *attribute_find(const struct descriptor *descriptor, cudnnBackendAttributeName_t name) {
	struct attribute *a = descriptor->attributes;
	while (a && a->name != name) a = a->next;
	return a;
}

int attribute_set(struct descriptor *descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
		  int64_t count, const void *values) {
	size_t bytes = (size_t)count * width(type);
	void *copied = malloc(bytes ? bytes : 1);
	if (!copied) return 0;
	memcpy(copied, values, bytes);
	if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
		for (int64_t i = 0; i < count; i++)
			if (((struct descriptor **)copied)[i]) ((struct descriptor **)copied)[i]->references++;
	struct attribute *a = attribute_find(descriptor, name);
	if (a) drop_values(a);
	else if ((a = calloc(1, sizeof *a))) {
		a->next = descriptor->attributes;
		descriptor->attributes = a;
	} else {
		free(copied);
		return 0;
	}
	a->name = name, a->type = type, a->count = count, a->values = copied;
	return 1;
}

struct descriptor *attribute_descriptor(const struct descriptor *descriptor, cudnnBackendAttributeName_t name) {
	struct attribute *a = attribute_find(descriptor, name);
	return a && a->count && a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR ? *(struct descriptor **)a->values : NULL;
}
