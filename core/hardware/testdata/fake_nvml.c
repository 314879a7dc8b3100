/* A stand-in for the NVIDIA driver's libnvidia-ml.so.1, for tests on machines without a GPU.
 *
 * One -D macro picks the machine (see "Machines"). Facts are those of real cards as the catalogue has them; UUIDs are made up.
 * Layouts follow nvml.h. Calls that break NVML's rules (anything before a successful nvmlInit, more shutdowns than inits,
 * a memory struct of the wrong version) abort the process, so that a test fails loudly.
 *
 *     cc -shared -fPIC -DMACHINE_T4 -o libnvidia-ml.so.1 fake_nvml.c
 *
 * FAKE_NVML_CONTROL names a file of 16 "struct control": while a GPU's "set" is not 0, its figures come from there, so that
 * another process or thread can change them at any moment. A call that reads them costs no more than one that does not.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15,
       VERSION_MISMATCH = 18 };
#define MIB 1048576ULL
#define NOT_AVAILABLE 0xFFFFFFFFFFFFFFFFULL

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };

struct gpu {
    const char *name, *uuid;
    int major, minor;
    unsigned long long total, reserved, used; /* MiB */
    const struct gpu *slice;                  /* MIG is on and this is the instance at place 1 */
    unsigned pid;                             /* one compute process, 0 for none */
    unsigned long long pid_used;              /* bytes */
};

/* ---- Machines ---- */
#if defined(MACHINE_T4)
#define DRIVER "550.54.15"
#define CUDA 12040
static const struct gpu gpus[] = {{"Tesla T4", "GPU-aaaa0000-0000-0000-0000-000000000000", 7, 5, 15360, 442, 103, NULL, 4242, 100 * MIB}};
#elif defined(MACHINE_TWO_T4)
#define DRIVER "550.54.15"
#define CUDA 12040
static const struct gpu gpus[] = {{"Tesla T4", "GPU-aaaa0000-0000-0000-0000-000000000000", 7, 5, 15360, 442, 0, NULL, 0, 0},
                                  {"Tesla T4", "GPU-bbbb0000-0000-0000-0000-000000000000", 7, 5, 15360, 442, 11, NULL, 0, 0}};
#elif defined(MACHINE_T4_V100) /* the slower one first on the bus */
#define DRIVER "550.54.15"
#define CUDA 12040
static const struct gpu gpus[] = {{"Tesla T4", "GPU-aaaa0000-0000-0000-0000-000000000000", 7, 5, 15360, 442, 0, NULL, 0, 0},
                                  {"Tesla V100-SXM2-16GB", "GPU-ffff0000-0000-0000-0000-000000000000", 7, 0, 16160, 300, 10, NULL, 0, 0}};
#elif defined(MACHINE_L4)
#define DRIVER "580.105.08"
#define CUDA 13000
static const struct gpu gpus[] = {{"NVIDIA L4", "GPU-cccc0000-0000-0000-0000-000000000000", 8, 9, 23034, 497, 1, NULL, 0, 0}};
#elif defined(MACHINE_A100)
#define DRIVER "535.104.05"
#define CUDA 12020
static const struct gpu gpus[] = {
    {"NVIDIA A100-SXM4-40GB", "GPU-dddd0000-0000-0000-0000-000000000000", 8, 0, 40960, 615, 2048, NULL, 77, NOT_AVAILABLE}};
#elif defined(MACHINE_H100_MIG)
#define DRIVER "570.124.06"
#define CUDA 12080
static const struct gpu slice = {
    "NVIDIA H100 80GB HBM3 MIG 3g.40gb", "MIG-eeee1111-0000-0000-0000-000000000000", 0, 0, 40448, 0, 44, NULL, 9, NOT_AVAILABLE};
static const struct gpu gpus[] = {
    {"NVIDIA H100 80GB HBM3", "GPU-eeee0000-0000-0000-0000-000000000000", 9, 0, 81559, 600, 0, &slice, 0, 0}};
#elif defined(MACHINE_EIGHT_A100)
#define DRIVER "550.54.15"
#define CUDA 12040
#define CARD(n) {"NVIDIA A100-SXM4-40GB", "GPU-dddd000" n "-0000-0000-0000-000000000000", 8, 0, 40960, 615, 2048, NULL, 0, 0}
static const struct gpu gpus[] = {CARD("0"), CARD("1"), CARD("2"), CARD("3"), CARD("4"), CARD("5"), CARD("6"), CARD("7")};
#elif defined(MACHINE_LOST) /* the GPU falls off the bus after two memory readings */
#define DRIVER "550.54.15"
#define CUDA 12040
#define READINGS 2
static const struct gpu gpus[] = {{"Tesla T4", "GPU-aaaa0000-0000-0000-0000-000000000000", 7, 5, 15360, 442, 0, NULL, 0, 0}};
#elif defined(MACHINE_NO_MODULE) || defined(MACHINE_MISMATCH) || defined(MACHINE_EMPTY)
#define DRIVER "550.54.15"
#define CUDA 12040
static const struct gpu gpus[] = {{0}};
#elif defined(MACHINE_NOT_NVML) /* a library, but not NVML: no function at all */
#define NOTHING
#else
#error "choose a machine with -DMACHINE_…"
#endif

#ifndef NOTHING

static int inits;

struct control {
    unsigned long long set, result; /* result: what every reading of this GPU returns */
    unsigned long long used;        /* bytes */
    unsigned long long utilization, memory_busy, power, temperature, clock; /* %, %, mW, C, MHz */
    unsigned long long throttle, pcie_in, pcie_out, nvlink, ecc; /* reasons, KB/s, KB/s, KiB so far, errors so far */
    unsigned long long xid;                                      /* delivered once, then 0 */
    unsigned long long sm, tensor;                               /* %, of cards from Hopper on */
};

/* The figures of a GPU: the file's, or those of a card at work. */
static struct control *control_of(const struct gpu *gpu) {
    static _Thread_local struct control at_work;
    static struct control *file;
    static int asked;
    if (!asked) {
        const char *name = getenv("FAKE_NVML_CONTROL");
        int handle = name ? open(name, O_RDWR) : -1;
        void *map = handle < 0 ? MAP_FAILED : mmap(NULL, 16 * sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
        file = map == MAP_FAILED ? NULL : map;
        asked = 1;
    }
    for (unsigned i = 0; file && i < sizeof gpus / sizeof *gpus; i++)
        if ((gpu == &gpus[i] || gpu == gpus[i].slice) && file[i].set)
            return &file[i];
    at_work = (struct control){0, SUCCESS, gpu->used * MIB, 87, 40, 65000, 61, 1410, 4, 250, 50, 0, 0, 0, 71, 38};
    return &at_work;
}

static void need_init(void) {
    if (inits < 1) {
        fprintf(stderr, "fake_nvml: called without nvmlInit\n");
        abort();
    }
}

static int start(void) {
#if defined(MACHINE_NO_MODULE)
    return DRIVER_NOT_LOADED;
#elif defined(MACHINE_MISMATCH)
    return VERSION_MISMATCH;
#else
    inits++;
    return SUCCESS;
#endif
}

int nvmlShutdown(void) {
    need_init();
    inits--;
    return SUCCESS;
}

static int count(unsigned *out) {
    need_init();
#if defined(MACHINE_EMPTY)
    *out = 0;
#else
    *out = sizeof gpus / sizeof *gpus;
#endif
    return SUCCESS;
}

static int by_index(unsigned index, const struct gpu **out) {
    need_init();
    if (index >= sizeof gpus / sizeof *gpus)
        return INVALID_ARGUMENT;
    *out = &gpus[index];
    return SUCCESS;
}

static int text(const char *from, char *to, unsigned size) {
    need_init();
    if (strlen(from) + 1 > size)
        return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

int nvmlDeviceGetName(const struct gpu *gpu, char *out, unsigned size) { return text(gpu->name, out, size); }
int nvmlDeviceGetUUID(const struct gpu *gpu, char *out, unsigned size) { return text(gpu->uuid, out, size); }

int nvmlDeviceGetCudaComputeCapability(const struct gpu *gpu, int *major, int *minor) {
    need_init();
    *major = gpu->major;
    *minor = gpu->minor;
    return SUCCESS;
}

/* As real drivers do, the first version counts the driver's reserve as used. */
int nvmlDeviceGetMemoryInfo(const struct gpu *gpu, struct memory *out) {
    need_init();
    out->total = gpu->total * MIB;
    out->used = (gpu->used + gpu->reserved) * MIB;
    out->free = out->total - out->used;
    return SUCCESS;
}

int nvmlInit_v2(void) { return start(); }
int nvmlInitWithFlags(unsigned flags) { return flags ? INVALID_ARGUMENT : start(); }
int nvmlDeviceGetCount_v2(unsigned *out) { return count(out); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, const struct gpu **out) { return by_index(index, out); }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { return text(DRIVER, out, size); }

int nvmlSystemGetCudaDriverVersion(int *out) {
    need_init();
    *out = CUDA;
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(const struct gpu *gpu, struct memory_v2 *out) {
    need_init();
    if (out->version != (sizeof *out | 2u << 24))
        abort();
#ifdef READINGS
    static int readings;
    if (++readings > READINGS)
        return GPU_IS_LOST;
#endif
    out->total = gpu->total * MIB;
    out->reserved = gpu->reserved * MIB;
    const struct control *now = control_of(gpu);
    if (now->result != SUCCESS)
        return now->result;
    out->used = now->used;
    out->free = out->total - out->reserved - out->used;
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(const struct gpu *gpu, unsigned *n, struct process *out) {
    need_init();
    if (gpu->pid == 0) {
        *n = 0;
        return SUCCESS;
    }
    if (*n < 1)
        return INSUFFICIENT_SIZE;
    *n = 1;
    out[0] = (struct process){gpu->pid, gpu->pid_used, ~0u, ~0u};
    return SUCCESS;
}

int nvmlDeviceGetMigMode(const struct gpu *gpu, unsigned *current, unsigned *pending) {
    need_init();
    if (gpu->major < 8)
        return NOT_SUPPORTED;
    *current = *pending = gpu->slice != NULL;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(const struct gpu *gpu, unsigned *out) {
    need_init();
    *out = gpu->slice ? 7 : 0;
    return SUCCESS;
}

#define READING(name, type, value)                       \
    int name(const struct gpu *gpu, type *out) {         \
        need_init();                                     \
        const struct control *now = control_of(gpu);     \
        *out = value;                                    \
        return now->result;                              \
    }
#define READING_OF(name, type, kind, value)                    \
    int name(const struct gpu *gpu, unsigned kind, type *out) { \
        need_init();                                           \
        const struct control *now = control_of(gpu);           \
        *out = value;                                          \
        return now->result;                                    \
    }

struct utilization { unsigned gpu, memory; };
READING(nvmlDeviceGetUtilizationRates, struct utilization, ((struct utilization){now->utilization, now->memory_busy}))
READING(nvmlDeviceGetPowerUsage, unsigned, now->power)
READING(nvmlDeviceGetEnforcedPowerLimit, unsigned, 70000)
READING_OF(nvmlDeviceGetTemperature, unsigned, sensor, now->temperature)
READING_OF(nvmlDeviceGetClockInfo, unsigned, kind, now->clock)
READING_OF(nvmlDeviceGetMaxClockInfo, unsigned, kind, 1590)
READING(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, now->throttle)

/* Real drivers watch the bus for 20 ms. */
int nvmlDeviceGetPcieThroughput(const struct gpu *gpu, unsigned direction, unsigned *out) {
    need_init();
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    const struct control *now = control_of(gpu);
    *out = direction ? now->pcie_in : now->pcie_out; /* 0 is sending, 1 receiving */
    return now->result;
}

int nvmlDeviceGetTotalEccErrors(const struct gpu *gpu, unsigned kind, unsigned counter, unsigned long long *out) {
    need_init();
    const struct control *now = control_of(gpu);
    *out = kind == 1 && counter == 0 ? now->ecc : 0;
    return gpu->major < 8 ? NOT_SUPPORTED : now->result;
}

struct field { unsigned id, scope; long long time, latency; unsigned type, result; unsigned long long value; };

int nvmlDeviceGetFieldValues(const struct gpu *gpu, int n, struct field *fields) {
    need_init();
    const struct control *now = control_of(gpu);
    for (int i = 0; i < n; i++) {
        fields[i].result = gpu->major < 8 ? NOT_SUPPORTED : SUCCESS;
        fields[i].value = now->nvlink / 2; /* one half sent, one received */
    }
    return now->result;
}

/* Counters between two samples, which hold nothing but their GPU. */
struct support { unsigned version, supported; };
struct sample { const struct gpu *gpu; };
struct metric { unsigned id, result; double value; const char *names[3]; };
struct metrics { unsigned version, count; struct sample *older, *newer; struct metric metrics[333]; };

int nvmlGpmQueryDeviceSupport(const struct gpu *gpu, struct support *out) {
    need_init();
    out->supported = gpu->major >= 9;
    return control_of(gpu)->result;
}

int nvmlGpmSampleAlloc(struct sample **out) {
    need_init();
    *out = calloc(1, sizeof **out);
    return SUCCESS;
}

int nvmlGpmSampleFree(struct sample *sample) {
    free(sample);
    return SUCCESS;
}

int nvmlGpmSampleGet(const struct gpu *gpu, struct sample *sample) {
    need_init();
    sample->gpu = gpu;
    return control_of(gpu)->result;
}

int nvmlGpmMetricsGet(struct metrics *ask) {
    need_init();
    for (unsigned i = 0; i < ask->count; i++) {
        const struct control *now = control_of(ask->newer->gpu);
        ask->metrics[i].result = ask->older == ask->newer ? NOT_SUPPORTED : SUCCESS;
        ask->metrics[i].value = ask->metrics[i].id == 2 ? now->sm : now->tensor; /* NVML_GPM_METRIC_SM_UTIL, _ANY_TENSOR_UTIL */
    }
    return SUCCESS;
}

/* A queue of errors belongs to the one GPU that it was registered for. */
struct event_set { const struct gpu *gpu; };
struct event { const struct gpu *gpu; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

int nvmlEventSetCreate(struct event_set **out) {
    need_init();
    *out = calloc(1, sizeof **out);
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(const struct gpu *gpu, unsigned long long kinds, struct event_set *set) {
    need_init();
    set->gpu = gpu;
    return kinds == 8 ? SUCCESS : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(struct event_set *set, struct event *out, unsigned milliseconds) {
    need_init();
    struct control *now = control_of(set->gpu);
    if (now->xid == 0)
        return TIMEOUT;
    *out = (struct event){set->gpu, 8, now->xid, ~0u, ~0u};
    now->xid = 0;
    return SUCCESS;
}

int nvmlEventSetFree(struct event_set *set) {
    need_init();
    free(set);
    return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(const struct gpu *gpu, unsigned index, const struct gpu **out) {
    need_init();
    if (gpu->slice == NULL || index != 1)
        return NOT_FOUND;
    *out = gpu->slice;
    return SUCCESS;
}
#endif
