/* cuDNN's graph interface with one engine, which runs every graph by doing nothing. */
#include "cudnn_attributes.h"
#include <string.h>

/* CUDNN_ATTR_ENGINECFG_…, which the headers of cuDNN 9.1 lack. */
enum { ENGINECFG_WORKSPACE_SIZE = 303, ENGINECFG_SHARED_MEMORY_USED = 304 };

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made) {
	*made = descriptor_new(type);
	return *made ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
	descriptor_release(descriptor);
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
	int set = attribute_set(descriptor, name, type, count, values);
	return set ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
}

/* A plan needs what its configuration said. */
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t finalized) {
	struct descriptor *plan = finalized;
	if (plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) return CUDNN_STATUS_SUCCESS;
	struct descriptor *config = attribute_descriptor(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
	if (config) plan->workspace = config->workspace;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
	return CUDNN_STATUS_SUCCESS;
}

/* One configuration, written into the caller's descriptor. Its workspace is found now, as the caller may drop the graph
 * before it builds a plan. */
static int64_t write_configurations(const struct descriptor *heuristics, int64_t most, void *values) {
	struct descriptor *config = most > 0 && values ? *(struct descriptor **)values : NULL;
	if (!config) return 1;
	struct descriptor *graph = attribute_descriptor(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
	struct descriptor *engine = descriptor_new(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	attribute_set(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
	descriptor_release(engine);
	config->workspace = graph ? workspace_of(graph) : 0;
	return 1;
}

static int64_t write_int64(int64_t value, int64_t most, void *values) {
	if (most > 0 && values) memcpy(values, &value, sizeof value);
	return 1;
}

static int64_t write_int32(int32_t value, int64_t most, void *values) {
	if (most > 0 && values) memcpy(values, &value, sizeof value);
	return 1;
}

static int64_t write_set(const struct descriptor *d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
			 int64_t most, void *values) {
	struct attribute *set = attribute_find(d, name);
	if (set) {
		if (values && most > 0) memcpy(values, set->values, (size_t)attribute_bytes(set, most));
		return set->count;
	}
	return type == CUDNN_TYPE_INT64 && most == 1 ? write_int64(0, most, values) : 0; /* an index or a number of things */
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *values) {
	const struct descriptor *d = descriptor;
	int64_t written;
	switch ((int)name) {
	case CUDNN_ATTR_ENGINEHEUR_RESULTS: written = write_configurations(d, most, values); break;
	case CUDNN_ATTR_ENGINECFG_ENGINE: written = 1; break; /* the caller's own descriptor: engine 0, without notes */
	case CUDNN_ATTR_ENGINECFG_INTERMEDIATE_INFO:
	case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: written = 0; break;
	case ENGINECFG_SHARED_MEMORY_USED: written = write_int32(0, most, values); break;
	case ENGINECFG_WORKSPACE_SIZE:
	case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: written = write_int64(d->workspace, most, values); break;
	case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT: written = write_int64(1, most, values); break;
	case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION:
		written = sizeof "{}";
		if (most >= written && values) memcpy(values, "{}", sizeof "{}");
		break;
	default: written = write_set(d, name, type, most, values);
	}
	if (count) *count = written;
	return CUDNN_STATUS_SUCCESS;
}
