/* What the parts of the stand-in runtime share. Addresses of device memory are addresses of this process.
 *
 * Names that begin with standin_ are seen by the other libraries, too; the rest stays inside one.
 */
#ifndef STANDIN_H
#define STANDIN_H
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_DEVICES 16
#define GRANULE ((uint64_t)2 << 20) /* a GPU maps memory in pages of 2 MiB */
#define PAGE ((uint64_t)4096)
#define UP(n, unit) (((uint64_t)(n) + (unit)-1) / (unit) * (unit))

/* One GPU, filled in by Python (cards.py holds the same fields in the same order). */
struct card {
	char name[256];
	uint64_t memory_bytes;  /* as the driver reports it */
	uint64_t context_bytes; /* in use from the start: CUDA context and kernels */
	int major, minor, multiprocessors;
	int l2_bytes;
	int threads_per_multiprocessor, blocks_per_multiprocessor;
	int shared_per_multiprocessor, shared_per_block_optin;
};

enum range_kind { DEVICE, HOST, RESERVED, MANAGED, REGISTERED };

/* A range of addresses that was handed out. */
struct range {
	char *start;
	uint64_t size;
	int device; /* -1 in a reserved range without memory */
	enum range_kind kind;
};

extern struct card standin_cards[MAX_DEVICES];
extern int standin_card_count;
int current_device(void);
unsigned char standin_uuid_byte(int device, int place); /* made up, one identifier per device */

cudaError_t set_error(cudaError_t error); /* remembered for cudaGetLastError */

/* Memory accounting of a device; all take the lock themselves. */
int charge(int device, uint64_t bytes); /* 0: that much is not free */
void refund(int device, uint64_t bytes);
uint64_t standin_used_bytes(int device);  /* with the context, and what was taken */
uint64_t standin_taken_bytes(int device); /* by something outside of this process */

/* The table of ranges. */
void ranges_add(struct range range);
int ranges_find(const void *address, struct range *found);
int ranges_remove(const void *start, int kinds, struct range *removed); /* kinds: bits of range_kind */
void ranges_set_device(const void *address, int device);
char *new_addresses(uint64_t bytes, uint64_t alignment, int protection);

/* A call of a name without a meaning, for unsupported() in Python. */
void standin_note(const char *name);

void *driver_function(const char *name);
#endif
