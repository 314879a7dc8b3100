/* Which addresses were handed out, sorted; and how much of each device's memory is in use. */
#define _GNU_SOURCE
#include "standin.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct range *table;
static size_t count, capacity;
static uint64_t used[MAX_DEVICES];
static uint64_t taken[MAX_DEVICES]; /* of used: by standin_take */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The number of ranges that start at or below the address. */
static size_t below(const void *address) {
	size_t low = 0, high = count;
	while (low < high) {
		size_t middle = (low + high) / 2;
		if (table[middle].start <= (const char *)address) low = middle + 1;
		else high = middle;
	}
	return low;
}

static struct range *holding(const void *address) {
	size_t i = below(address);
	if (!i || (const char *)address >= table[i - 1].start + table[i - 1].size) return NULL;
	return &table[i - 1];
}

void ranges_add(struct range range) {
	pthread_mutex_lock(&lock);
	if (count == capacity) {
		capacity = capacity ? 2 * capacity : 1024;
		table = realloc(table, capacity * sizeof *table);
		if (!table) abort();
	}
	size_t i = below(range.start);
	memmove(table + i + 1, table + i, (count - i) * sizeof *table);
	table[i] = range;
	count++;
	pthread_mutex_unlock(&lock);
}

int ranges_find(const void *address, struct range *found) {
	pthread_mutex_lock(&lock);
	struct range *range = holding(address);
	if (range) *found = *range;
	pthread_mutex_unlock(&lock);
	return range != NULL;
}

int ranges_remove(const void *start, int kinds, struct range *removed) {
	pthread_mutex_lock(&lock);
	struct range *range = holding(start);
	if (range && (range->start != start || !(kinds & 1 << range->kind))) range = NULL;
	if (range) {
		*removed = *range;
		memmove(range, range + 1, (table + count - range - 1) * sizeof *table);
		count--;
	}
	pthread_mutex_unlock(&lock);
	return range != NULL;
}

void ranges_set_device(const void *address, int device) {
	pthread_mutex_lock(&lock);
	struct range *range = holding(address);
	if (range) range->device = device;
	pthread_mutex_unlock(&lock);
}

int charge(int device, uint64_t bytes) {
	pthread_mutex_lock(&lock);
	uint64_t taken = used[device] + standin_cards[device].context_bytes;
	int fits = taken <= standin_cards[device].memory_bytes && bytes <= standin_cards[device].memory_bytes - taken;
	if (fits) used[device] += bytes;
	pthread_mutex_unlock(&lock);
	return fits;
}

void refund(int device, uint64_t bytes) {
	pthread_mutex_lock(&lock);
	used[device] -= bytes;
	pthread_mutex_unlock(&lock);
}

/* Memory that something outside of this process holds from now on. 0: that much is not free. */
int standin_take(int device, uint64_t bytes) {
	if (device < 0 || device >= standin_card_count || !charge(device, bytes)) return 0;
	pthread_mutex_lock(&lock);
	taken[device] += bytes;
	pthread_mutex_unlock(&lock);
	return 1;
}

/* What standin_take took, or a part of it. 0: that much was not taken. */
int standin_give_back(int device, uint64_t bytes) {
	if (device < 0 || device >= standin_card_count || bytes > standin_taken_bytes(device)) return 0;
	pthread_mutex_lock(&lock);
	taken[device] -= bytes;
	pthread_mutex_unlock(&lock);
	refund(device, bytes);
	return 1;
}

uint64_t standin_taken_bytes(int device) {
	pthread_mutex_lock(&lock);
	uint64_t bytes = taken[device];
	pthread_mutex_unlock(&lock);
	return bytes;
}

uint64_t standin_used_bytes(int device) {
	pthread_mutex_lock(&lock);
	uint64_t bytes = used[device] + standin_cards[device].context_bytes;
	pthread_mutex_unlock(&lock);
	return bytes;
}

/* Aligned address space that takes no memory until it is written to; what lies beside the aligned part goes back. */
char *new_addresses(uint64_t bytes, uint64_t alignment, int protection) {
	char *mapped = mmap(NULL, bytes + alignment, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mapped == MAP_FAILED) return NULL;
	char *start = (char *)UP((uintptr_t)mapped, alignment);
	if (start > mapped) munmap(mapped, start - mapped);
	if (start + bytes < mapped + bytes + alignment) munmap(start + bytes, mapped + alignment - start);
	madvise(start, bytes, MADV_NOHUGEPAGE); /* a small write shall not take 2 MiB of the host */
	return start;
}
