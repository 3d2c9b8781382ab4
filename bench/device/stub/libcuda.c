/* A CUDA driver for machines without a GPU: the calls that CubeCL's CUDA runtime makes
 * (cubecl-cuda 0.11.3 through cudarc 0.19.10 with its bindings for CUDA 13.0).
 *
 * Device memory is host memory and a copy is a copy. Kernels are not executed; modules and launches
 * are checked against the limits of the hardware and counted. NVRTC stays the real one, so every
 * kernel that the program launches is generated and compiled. What only a kernel writes stays zero.
 *
 *   cc -O2 -Wall -Wextra -shared -fPIC -o libcuda.so libcuda.c -lpthread
 *   ln -sf libcuda.so libcuda.so.1
 *
 * NVRTC opens the second name and calls cuInit. It is a link because two copies of the library
 * would each clear the counters.
 *
 * Environment, read by cuInit:
 *   CUDA_STUB_ARCH        80 (an A100) or 90 (an H200, the default)
 *   CUDA_STUB_MEMORY_MIB  memory of each device; 81920 for 80 and 143771 for 90 when unset
 *   CUDA_STUB_DEVICES     number of devices, 0 to 16; 1 when unset
 *   CUDA_STUB_VERSION     newest CUDA that the driver says it serves, 12090 for 12.9; 13000 when unset
 *   CUDA_STUB_BLANK       1: what the host reads of a device is zero. What no kernel computed is whatever lay in that memory, which differs
 *                         between devices
 *   CUDA_STUB_COUNTERS    file that holds the counters while the program runs
 *   CUDA_STUB_KERNELS     file written at exit, a JSON object: name of the kernel -> launches
 *
 * The counters are little-endian 64-bit integers, over all devices and without refused calls:
 *    0 launches            6 event_syncs               12 device_to_device bytes
 *    1 modules_loaded      7 host_to_device copies     13 allocations (device)
 *    2 streams_created     8 host_to_device bytes      14 live_bytes (device)
 *    3 events_created      9 device_to_host copies     15 peak_bytes (device)
 *    4 stream_waits       10 device_to_host bytes      16 memsets
 *    5 stream_syncs       11 device_to_device copies
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <search.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))
#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* ---- Results ---- */

typedef enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, INVALID_PTX = 218, NOT_FOUND = 500,
    NOT_SUPPORTED = 801
} CUresult;

#define TRY(call)                 \
    do {                          \
        CUresult status = (call); \
        if (status != SUCCESS)    \
            return status;        \
    } while (0)

/* Says on stderr why a call fails, in one write so that threads do not mix their lines. */
__attribute__((format(printf, 2, 3))) static CUresult refuse(CUresult code, const char *why, ...) {
    char reason[512];
    va_list arguments;
    va_start(arguments, why);
    vsnprintf(reason, sizeof reason, why, arguments);
    va_end(arguments);
    fprintf(stderr, "cuda stub: refused: %s\n", reason);
    return code;
}

CUresult cuGetErrorString(UNUSED CUresult code, const char **text) {
    *text = "error of the CUDA stub";
    return SUCCESS;
}

/* ---- Settings and counters ---- */

enum { MAX_DEVICES = 16 };

static const struct arch {
    int capability;
    const char *name;
    const char *targets[2];
    int multiprocessors;
    int shared_per_block;
    int shared_per_multiprocessor;
    uint64_t memory_mib;
} arches[] = {
    {80, "NVIDIA A100 (stub)", {"sm_80", "sm_80"}, 108, 166912, 167936, 81920},
    {90, "NVIDIA H200 (stub)", {"sm_90a", "sm_90"}, 132, 232448, 233472, 143771},
};

static bool initialized;
static const struct arch *arch;
static uint64_t memory_bytes;
static uint64_t device_count;
static uint64_t blank;
static uint64_t served = 13000;
static char *kernels_path;

/* In each direction the bytes follow the copies. */
enum counter {
    LAUNCHES, MODULES_LOADED, STREAMS_CREATED, EVENTS_CREATED, STREAM_WAITS, STREAM_SYNCS,
    EVENT_SYNCS, HOST_TO_DEVICE, DEVICE_TO_HOST = 9, DEVICE_TO_DEVICE = 11, ALLOCATIONS = 13,
    LIVE_BYTES, PEAK_BYTES, MEMSETS, COUNTERS
};

static _Atomic uint64_t private_counters[COUNTERS];
static _Atomic uint64_t *counters = private_counters;

static void count(enum counter counter, uint64_t amount) {
    atomic_fetch_add_explicit(&counters[counter], amount, memory_order_relaxed);
}

/* Reads a number; an unset variable leaves the value as it is. */
static bool read_setting(const char *name, uint64_t most, uint64_t *value) {
    const char *text = getenv(name);
    char *end = NULL;
    uint64_t number = text ? strtoull(text, &end, 10) : *value;
    if (text && (*text < '0' || *text > '9' || *end || number > most)) {
        fprintf(stderr, "cuda stub: %s=%s is not a number from 0 to %lu\n", name, text, most);
        return false;
    }
    *value = number;
    return true;
}

/* The file is never shorter than the counters: another process may have mapped it, and touching a
 * page beyond the end of a file kills the process that does. */
static bool open_counters(const char *path) {
    size_t size = COUNTERS * sizeof *counters;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    void *map = MAP_FAILED;
    if (file >= 0 && ftruncate(file, size) == 0)
        map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED) {
        fprintf(stderr, "cuda stub: CUDA_STUB_COUNTERS=%s cannot be written: %m\n", path);
        return false;
    }
    close(file);
    memset(map, 0, size);
    counters = map;
    return true;
}

static void configure(void) {
    uint64_t capability = 90;
    uint64_t devices = 1;
    if (!read_setting("CUDA_STUB_ARCH", 90, &capability) ||
        !read_setting("CUDA_STUB_DEVICES", MAX_DEVICES, &devices) ||
        !read_setting("CUDA_STUB_VERSION", 99990, &served) ||
        !read_setting("CUDA_STUB_BLANK", 1, &blank))
        return;
    if (capability != 80 && capability != 90) {
        fprintf(stderr, "cuda stub: CUDA_STUB_ARCH=%lu is neither 80 nor 90\n", capability);
        return;
    }
    arch = &arches[capability == 90];
    uint64_t memory_mib = arch->memory_mib;
    if (!read_setting("CUDA_STUB_MEMORY_MIB", 1 << 30, &memory_mib))
        return;
    const char *path = getenv("CUDA_STUB_COUNTERS");
    if (path && !open_counters(path))
        return;
    path = getenv("CUDA_STUB_KERNELS");
    kernels_path = path ? strdup(path) : NULL;
    memory_bytes = memory_mib << 20;
    device_count = devices;
    initialized = true;
}

CUresult cuInit(UNUSED unsigned flags) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, configure);
    return initialized ? SUCCESS : INVALID_VALUE;
}

CUresult cuDriverGetVersion(int *version) {
    *version = (int)served;
    return SUCCESS;
}

/* NVRTC asks for it when it finds a libcuda, and crashes when the symbol is missing. */
CUresult cuGetExportTable(const void **table, UNUSED const void *id) {
    *table = NULL;
    return NOT_FOUND;
}

/* ---- Live objects: everything the program may name, in a tree ordered by address ---- */

enum kind { DEVICE_MEMORY, HOST_MEMORY, STREAM, EVENT, FUNCTION };

struct object {
    uintptr_t start;
    size_t size;
    enum kind kind;
    int device;
};

static void *objects;
static pthread_rwlock_t objects_lock = PTHREAD_RWLOCK_INITIALIZER;

/* Ranges that share an address compare equal, so that an address finds what it lies in. */
static int by_address(const void *left, const void *right) {
    const struct object *a = left;
    const struct object *b = right;
    if (a->start < b->start)
        return b->start - a->start < a->size ? 0 : -1;
    return a->start - b->start < b->size ? 0 : 1;
}

static void add_object(enum kind kind, const void *start, size_t size, int device) {
    struct object *object = malloc(sizeof *object);
    *object = (struct object){(uintptr_t)start, size, kind, device};
    pthread_rwlock_wrlock(&objects_lock);
    tsearch(object, &objects, by_address);
    pthread_rwlock_unlock(&objects_lock);
}

/* Finds the object that an address lies in. */
static bool find_object(enum kind kind, uintptr_t address, struct object *found) {
    struct object key = {.start = address, .size = 1};
    pthread_rwlock_rdlock(&objects_lock);
    struct object *const *node = tfind(&key, &objects, by_address);
    bool live = node && (*node)->kind == kind;
    if (live)
        *found = **node;
    pthread_rwlock_unlock(&objects_lock);
    return live;
}

static bool is_live(enum kind kind, const void *handle) {
    struct object object;
    return find_object(kind, (uintptr_t)handle, &object) && object.start == (uintptr_t)handle;
}

/* Takes the object that starts at an address out of the tree. */
static bool remove_object(enum kind kind, uintptr_t start, struct object *removed) {
    struct object key = {.start = start, .size = 1};
    pthread_rwlock_wrlock(&objects_lock);
    struct object *const *node = tfind(&key, &objects, by_address);
    struct object *object = node ? *node : NULL;
    bool live = object && object->start == start && object->kind == kind;
    if (live) {
        *removed = *object;
        tdelete(object, &objects, by_address);
        free(object);
    }
    pthread_rwlock_unlock(&objects_lock);
    return live;
}

/* ---- Devices and contexts ---- */

static char contexts[MAX_DEVICES];
static _Thread_local int current = -1; /* Device of the thread's context. */

static CUresult check_device(int device) {
    if (!initialized)
        return NOT_INITIALIZED;
    return device >= 0 && (uint64_t)device < device_count ? SUCCESS : INVALID_DEVICE;
}

static CUresult check_context(const char *call) {
    return current >= 0 ? SUCCESS : refuse(INVALID_CONTEXT, "%s without a context", call);
}

CUresult cuDeviceGetCount(int *devices) {
    *devices = device_count;
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

CUresult cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return check_device(ordinal);
}

CUresult cuDeviceGetName(char *name, int length, int device) {
    TRY(check_device(device));
    snprintf(name, length, "%s", arch->name);
    return SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int length, int device) {
    TRY(check_device(device));
    snprintf(id, length, "0000:%02x:00.0", device + 1);
    return SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = memory_bytes;
    return check_device(device);
}

enum { MOST_THREADS = 1024, MOST_SHARED = 48 << 10 };
static const unsigned most_blocks[3] = {INT32_MAX, 65535, 65535};
static const unsigned most_threads[3] = {MOST_THREADS, MOST_THREADS, 64};

CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
    TRY(check_device(device));
    const int values[] = {
        /* Threads of a block, its shape, that of a grid, those of a warp and a multiprocessor. */
        [1] = MOST_THREADS, most_threads[0], most_threads[1], most_threads[2],
        [5] = most_blocks[0], most_blocks[1], most_blocks[2], [10] = 32, [39] = 2048,
        /* Shared memory of a block, of a multiprocessor, of a block that asks for more. */
        [8] = MOST_SHARED, [81] = arch->shared_per_multiprocessor, [97] = arch->shared_per_block,
        /* Multiprocessors, compute capability, whether there are memory pools. */
        [16] = arch->multiprocessors, [75] = arch->capability / 10, [76] = 0, [115] = 1,
    };
    bool known = attribute > 0 && (size_t)attribute < LENGTH(values);
    if (!known || (values[attribute] == 0 && attribute != 76))
        return refuse(INVALID_VALUE, "device attribute %d has no value here", attribute);
    *value = values[attribute];
    return SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(void **context, int device) {
    TRY(check_device(device));
    *context = &contexts[device];
    return SUCCESS;
}

CUresult cuCtxSetCurrent(void *context) {
    int device = (int)device_count - 1;
    while (device >= 0 && context != &contexts[device])
        device--;
    if (context && device < 0)
        return refuse(INVALID_CONTEXT, "%p is no context", context);
    current = device;
    return SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    TRY(check_context(__func__));
    count(STREAM_SYNCS, 1);
    return SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return check_context(__func__);
}

/* ---- Streams and events: the work of a call is done when it returns ---- */

static CUresult check_handle(const char *call, enum kind kind, const void *handle) {
    if (is_live(kind, handle))
        return SUCCESS;
    const char *name = kind == STREAM ? "stream" : "event";
    return refuse(INVALID_VALUE, "%s with unknown %s %p", call, name, handle);
}

/* Handles 0, 1 and 2 are the default streams, which no program creates. */
static CUresult check_stream(const char *call, const void *stream) {
    return (uintptr_t)stream <= 2 ? SUCCESS : check_handle(call, STREAM, stream);
}

static CUresult create_handle(const char *call, enum kind kind, void **handle) {
    TRY(check_context(call));
    *handle = malloc(1);
    add_object(kind, *handle, 1, current);
    count(kind == STREAM ? STREAMS_CREATED : EVENTS_CREATED, 1);
    return SUCCESS;
}

static CUresult destroy_handle(const char *call, enum kind kind, void *handle) {
    struct object object;
    if (!remove_object(kind, (uintptr_t)handle, &object))
        return check_handle(call, kind, handle);
    free(handle);
    return SUCCESS;
}

CUresult cuStreamCreate(void **stream, UNUSED unsigned flags) {
    return create_handle(__func__, STREAM, stream);
}

CUresult cuStreamCreateWithPriority(void **stream, UNUSED unsigned flags, UNUSED int priority) {
    return create_handle(__func__, STREAM, stream);
}

CUresult cuStreamDestroy_v2(void *stream) {
    return destroy_handle(__func__, STREAM, stream);
}

CUresult cuStreamSynchronize(void *stream) {
    TRY(check_stream(__func__, stream));
    count(STREAM_SYNCS, 1);
    return SUCCESS;
}

CUresult cuStreamWaitEvent(void *stream, void *event, UNUSED unsigned flags) {
    TRY(check_stream(__func__, stream));
    TRY(check_handle(__func__, EVENT, event));
    count(STREAM_WAITS, 1);
    return SUCCESS;
}

CUresult cuEventCreate(void **event, UNUSED unsigned flags) {
    return create_handle(__func__, EVENT, event);
}

CUresult cuEventDestroy_v2(void *event) {
    return destroy_handle(__func__, EVENT, event);
}

/* When each event was recorded, by the clock of the host: what takes no time on a device still takes
 * the host's, and a tuner that repeats work until it takes long enough comes to an end. Two events
 * that share a place only make a time wrong. */
enum { EVENT_TIMES = 1 << 12 };
static _Atomic uint64_t event_times[EVENT_TIMES];

static _Atomic uint64_t *event_time(void *event) {
    return &event_times[((uintptr_t)event >> 4) % EVENT_TIMES];
}

CUresult cuEventRecord(void *event, void *stream) {
    TRY(check_stream(__func__, stream));
    TRY(check_handle(__func__, EVENT, event));
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(event_time(event), (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
    return SUCCESS;
}

CUresult cuEventSynchronize(void *event) {
    TRY(check_handle(__func__, EVENT, event));
    count(EVENT_SYNCS, 1);
    return SUCCESS;
}

CUresult cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    TRY(check_handle(__func__, EVENT, start));
    TRY(check_handle(__func__, EVENT, end));
    uint64_t from = atomic_load(event_time(start)), to = atomic_load(event_time(end));
    *milliseconds = to > from ? (float)(to - from) * 1e-6f : 1e-3f;
    return SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, void *start, void *end) {
    return cuEventElapsedTime(milliseconds, start, end);
}

/* ---- Memory ---- */

static _Atomic uint64_t live_bytes[MAX_DEVICES];

/* The machine gives a page when it is first touched, so what no copy reaches costs nothing and a
 * model larger than the machine's memory fits. */
CUresult cuMemAlloc_v2(uint64_t *address, size_t size) {
    TRY(check_context(__func__));
    if (size == 0)
        return refuse(INVALID_VALUE, "allocation of no bytes");
    uint64_t live = atomic_load(&live_bytes[current]);
    do {
        if (size > memory_bytes - live)
            return refuse(OUT_OF_MEMORY, "allocation of %zu bytes, %lu of %lu are in use", size,
                          live, memory_bytes);
    } while (!atomic_compare_exchange_weak(&live_bytes[current], &live, live + size));
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        atomic_fetch_sub(&live_bytes[current], size);
        return refuse(OUT_OF_MEMORY, "allocation of %zu bytes: %m", size);
    }
    add_object(DEVICE_MEMORY, memory, size, current);
    count(ALLOCATIONS, 1);
    uint64_t total = atomic_fetch_add(&counters[LIVE_BYTES], size) + size;
    uint64_t peak = atomic_load(&counters[PEAK_BYTES]);
    while (peak < total && !atomic_compare_exchange_weak(&counters[PEAK_BYTES], &peak, total))
        continue;
    *address = (uint64_t)memory;
    return SUCCESS;
}

CUresult cuMemAllocAsync(uint64_t *address, size_t size, void *stream) {
    TRY(check_stream(__func__, stream));
    return cuMemAlloc_v2(address, size);
}

CUresult cuMemFree_v2(uint64_t address) {
    struct object object;
    if (!remove_object(DEVICE_MEMORY, address, &object))
        return refuse(INVALID_VALUE, "free of %#lx, which is no device allocation", address);
    atomic_fetch_sub(&live_bytes[object.device], object.size);
    atomic_fetch_sub(&counters[LIVE_BYTES], object.size);
    munmap((void *)address, object.size);
    return SUCCESS;
}

CUresult cuMemFreeAsync(uint64_t address, void *stream) {
    TRY(check_stream(__func__, stream));
    return cuMemFree_v2(address);
}

/* One byte more, so that an allocation of none has an address of its own. */
CUresult cuMemAllocHost_v2(void **memory, size_t size) {
    TRY(check_context(__func__));
    if (posix_memalign(memory, 4096, size + 1) != 0)
        return refuse(OUT_OF_MEMORY, "allocation of %zu bytes on the host", size);
    add_object(HOST_MEMORY, *memory, size + 1, current);
    return SUCCESS;
}

CUresult cuMemFreeHost(void *memory) {
    struct object object;
    if (!remove_object(HOST_MEMORY, (uintptr_t)memory, &object))
        return refuse(INVALID_VALUE, "free of %p, which is no host allocation", memory);
    free(memory);
    return SUCCESS;
}

/* ---- Copies: a linear one has a single row ---- */

struct side {
    bool device;
    uint64_t address;
    size_t pitch;
};

static bool holds(struct side side, size_t width, size_t height) {
    if (!side.device)
        return side.address != 0;
    struct object object;
    if (!find_object(DEVICE_MEMORY, side.address, &object))
        return false;
    size_t room = object.size - (side.address - object.start);
    return width <= room && height - 1 <= (room - width) / side.pitch;
}

static CUresult copy(const char *call, struct side to, struct side from, size_t width,
                     size_t height, void *stream) {
    TRY(check_stream(call, stream));
    bool empty = width == 0 || height == 0;
    if (!empty && (!holds(to, width, height) || !holds(from, width, height)))
        return refuse(INVALID_VALUE, "%s, %zu x %zu bytes from %#lx to %#lx: not in one allocation",
                      call, height, width, from.address, to.address);
    for (size_t row = 0; !empty && row < height; row++) {
        char *target = (char *)to.address + row * to.pitch;
        if (blank && !to.device)
            memset(target, 0, width);
        else
            memmove(target, (char *)from.address + row * from.pitch, width);
    }
    enum counter direction = to.device ? HOST_TO_DEVICE : DEVICE_TO_HOST;
    if (from.device && to.device)
        direction = DEVICE_TO_DEVICE;
    count(direction, 1);
    count(direction + 1, width * height);
    return SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
    struct side host = {false, (uint64_t)from, size};
    return copy(__func__, (struct side){true, to, size}, host, size, 1, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) {
    struct side host = {false, (uint64_t)to, size};
    return copy(__func__, host, (struct side){true, from, size}, size, 1, stream);
}

CUresult cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
    struct side source = {true, from, size};
    return copy(__func__, (struct side){true, to, size}, source, size, 1, stream);
}

struct end {
    size_t x;
    size_t y;
    unsigned type; /* 1 host, 2 device. */
    void *host;
    uint64_t device;
    void *array;
    size_t pitch;
};

struct copy_2d {
    struct end from;
    struct end to;
    size_t width;
    size_t height;
};

static struct side side_of(const struct end *end) {
    uint64_t base = end->type == 2 ? end->device : (uint64_t)end->host;
    return (struct side){end->type == 2, base + end->y * end->pitch + end->x, end->pitch};
}

CUresult cuMemcpy2DAsync_v2(const struct copy_2d *rows, void *stream) {
    const struct end *to = &rows->to;
    const struct end *from = &rows->from;
    bool memory = (to->type == 1 || to->type == 2) && (from->type == 1 || from->type == 2);
    bool hosts = to->type == 1 && from->type == 1;
    bool pitched = to->pitch >= to->x + rows->width && to->pitch <= INT32_MAX &&
                   from->pitch >= from->x + rows->width && from->pitch <= INT32_MAX;
    if (!memory || hosts || !pitched)
        return refuse(INVALID_VALUE, "%s, %zu bytes of pitch %zu to %zu, memory types %u to %u",
                      __func__, rows->width, from->pitch, to->pitch, from->type, to->type);
    return copy(__func__, side_of(to), side_of(from), rows->width, rows->height, stream);
}

CUresult cuMemsetD8Async(uint64_t address, unsigned char value, size_t size, void *stream) {
    TRY(check_stream(__func__, stream));
    if (size > 0 && !holds((struct side){true, address, size}, size, 1))
        return refuse(INVALID_VALUE, "%s, %zu bytes at %#lx: not in one allocation", __func__,
                      size, address);
    memset((void *)address, value, size);
    count(MEMSETS, 1);
    return SUCCESS;
}

/* ---- Modules and kernels ---- */

/* The launches of one name, over all modules that have it. */
struct kernel {
    char *name;
    _Atomic uint64_t launches;
    bool measures_peak;
};

struct function {
    struct function *next;
    struct kernel *kernel;
    size_t static_shared;
    _Atomic size_t dynamic_shared; /* The most that a launch may ask for. */
};

static struct kernel **kernels;
static size_t kernel_count;
static pthread_mutex_t kernels_lock = PTHREAD_MUTEX_INITIALIZER;

static struct kernel *kernel_named(const char *name) {
    pthread_mutex_lock(&kernels_lock);
    size_t place = 0;
    while (place < kernel_count && strcmp(kernels[place]->name, name) != 0)
        place++;
    if (place == kernel_count) {
        kernels = realloc(kernels, ++kernel_count * sizeof *kernels);
        kernels[place] = calloc(1, sizeof **kernels);
        kernels[place]->name = strdup(name);
        kernels[place]->measures_peak = strstr(name, "_throughput_") != NULL;
    }
    struct kernel *kernel = kernels[place];
    pthread_mutex_unlock(&kernels_lock);
    return kernel;
}

/* Size of a variable in shared memory that a line of PTX declares; dynamic memory is `.extern`. */
static size_t shared_bytes(const char *line) {
    const char *shared = strstr(line, ".shared ");
    unsigned bits;
    size_t elements = 1;
    if (line[0] != '.' || !shared || strstr(line, ".extern") ||
        sscanf(shared, ".shared .align %*u .%*1[bsuf]%u %*[^[;][%zu", &bits, &elements) < 1)
        return 0;
    return bits / 8 * elements;
}

/* Lists the entries of a module. A declaration outside of them counts for the entry before it. */
static struct function *read_entries(const char *ptx) {
    struct function *functions = NULL;
    size_t before = 0;
    char *copy = strdup(ptx);
    char *rest;
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        line += strspn(line, " \t");
        char *entry = line[0] == '.' ? strstr(line, ".entry ") : NULL;
        if (entry) {
            entry += strlen(".entry ");
            entry[strcspn(entry, " \t(")] = '\0';
            struct function *function = calloc(1, sizeof *function);
            function->next = functions;
            function->kernel = kernel_named(entry);
            function->static_shared = before;
            functions = function;
        } else if (functions) {
            functions->static_shared += shared_bytes(line);
        } else {
            before += shared_bytes(line);
        }
    }
    free(copy);
    return functions;
}

CUresult cuModuleLoadData(void **module, const void *image) {
    TRY(check_context(__func__));
    const char *ptx = image ? image : "";
    char target[16] = "";
    while (strncmp(ptx, "//", 2) == 0 || (*ptx && strchr(" \r\n", *ptx)))
        ptx += *ptx == '/' ? strcspn(ptx, "\n") : 1;
    if (sscanf(ptx, ".version %*s .target %15[a-z0-9_]", target) != 1)
        return refuse(INVALID_PTX, "a module that is no PTX text");
    if (strcmp(target, arch->targets[0]) != 0 && strcmp(target, arch->targets[1]) != 0)
        return refuse(NO_BINARY_FOR_GPU, "a module for %s on %s", target, arch->targets[0]);
    struct function *functions = read_entries(ptx);
    if (!functions)
        return refuse(INVALID_PTX, "a module without a kernel");
    for (struct function *function = functions; function; function = function->next) {
        if (function->static_shared > MOST_SHARED)
            return refuse(INVALID_PTX, "kernel %s has %zu bytes of static shared memory",
                          function->kernel->name, function->static_shared);
        function->dynamic_shared = MOST_SHARED - function->static_shared;
        add_object(FUNCTION, function, sizeof *function, current);
    }
    *module = functions;
    count(MODULES_LOADED, 1);
    return SUCCESS;
}

CUresult cuModuleGetFunction(void **found, void *module, const char *name) {
    struct function *function = is_live(FUNCTION, module) ? module : NULL;
    while (function && strcmp(function->kernel->name, name) != 0)
        function = function->next;
    if (!function)
        return refuse(NOT_FOUND, "module %p has no kernel %s", module, name);
    *found = function;
    return SUCCESS;
}

CUresult cuFuncSetAttribute(void *handle, int attribute, int value) {
    if (!is_live(FUNCTION, handle))
        return refuse(INVALID_VALUE, "%s of unknown function %p", __func__, handle);
    struct function *function = handle;
    if (attribute != 8) /* Only the dynamic shared memory matters here. */
        return SUCCESS;
    if (value < 0 || value + function->static_shared > (size_t)arch->shared_per_block)
        return refuse(INVALID_VALUE, "kernel %s with %d bytes of shared memory and %zu static",
                      function->kernel->name, value, function->static_shared);
    function->dynamic_shared = value;
    return SUCCESS;
}

CUresult cuLaunchKernel(void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                        void *stream, UNUSED void **arguments, UNUSED void **extra) {
    if (!is_live(FUNCTION, handle))
        return refuse(INVALID_VALUE, "launch of unknown function %p", handle);
    TRY(check_stream(__func__, stream));
    struct function *function = handle;
    const char *name = function->kernel->name;
    const unsigned grid[3] = {grid_x, grid_y, grid_z};
    const unsigned block[3] = {block_x, block_y, block_z};
    bool fits = (uint64_t)block_x * block_y * block_z <= MOST_THREADS;
    for (int axis = 0; axis < 3; axis++) {
        fits = fits && grid[axis] > 0 && grid[axis] <= most_blocks[axis];
        fits = fits && block[axis] > 0 && block[axis] <= most_threads[axis];
    }
    if (!fits)
        return refuse(INVALID_VALUE, "kernel %s with grid %u x %u x %u of block %u x %u x %u", name,
                      grid_x, grid_y, grid_z, block_x, block_y, block_z);
    if (shared > function->dynamic_shared)
        return refuse(INVALID_VALUE, "kernel %s with %u bytes of shared memory, at most %zu", name,
                      shared, function->dynamic_shared);
    atomic_fetch_add_explicit(&function->kernel->launches, 1, memory_order_relaxed);
    count(LAUNCHES, 1);
    /* The tuner measures the card's peak with more and more work until it takes 20 ms, which work
     * that is not done never would. */
    if (function->kernel->measures_peak)
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    return SUCCESS;
}

static int by_launches(const void *left, const void *right) {
    const struct kernel *a = *(struct kernel *const *)left;
    const struct kernel *b = *(struct kernel *const *)right;
    if (a->launches != b->launches)
        return a->launches < b->launches ? 1 : -1;
    return strcmp(a->name, b->name);
}

__attribute__((destructor)) static void write_kernels(void) {
    if (!kernels_path)
        return;
    FILE *file = fopen(kernels_path, "w");
    if (!file) {
        fprintf(stderr, "cuda stub: CUDA_STUB_KERNELS=%s cannot be written: %m\n", kernels_path);
        return;
    }
    pthread_mutex_lock(&kernels_lock);
    qsort(kernels, kernel_count, sizeof *kernels, by_launches);
    fprintf(file, "{");
    for (size_t i = 0; i < kernel_count; i++)
        fprintf(file, "%s\n  \"%s\": %lu", i ? "," : "", kernels[i]->name, kernels[i]->launches);
    fprintf(file, "\n}\n");
    fclose(file);
    pthread_mutex_unlock(&kernels_lock);
}

/* ---- Tensor maps: descriptors that only a kernel reads ---- */

/* The three calls differ only behind the arguments that are read here. */
static CUresult encode_map(const char *call, void *map, const void *tensor) {
    struct object object;
    if (arch->capability < 90)
        return refuse(NOT_SUPPORTED, "%s on %s", call, arch->targets[0]);
    if (!find_object(DEVICE_MEMORY, (uintptr_t)tensor, &object) || (uintptr_t)tensor % 16 != 0)
        return refuse(INVALID_VALUE, "%s of %p: no device allocation or no multiple of 16", call,
                      tensor);
    memset(map, 0, 128);
    return SUCCESS;
}

#define TENSOR_MAP(call)                                                            \
    CUresult call(void *map, UNUSED int type, UNUSED unsigned rank, void *tensor) { \
        return encode_map(#call, map, tensor);                                      \
    }

TENSOR_MAP(cuTensorMapEncodeTiled)
TENSOR_MAP(cuTensorMapEncodeIm2col)
TENSOR_MAP(cuTensorMapEncodeIm2colWide)

/* ---- Graphs: not supported, whatever the arguments ---- */

#define UNSUPPORTED(call)     \
    CUresult call(void) {     \
        return NOT_SUPPORTED; \
    }

UNSUPPORTED(cuStreamBeginCapture_v2)
UNSUPPORTED(cuStreamEndCapture)
UNSUPPORTED(cuGraphInstantiateWithFlags)
UNSUPPORTED(cuGraphUpload)
UNSUPPORTED(cuGraphLaunch)
UNSUPPORTED(cuGraphGetNodes)
UNSUPPORTED(cuGraphNodeGetType)
UNSUPPORTED(cuGraphDestroy)
UNSUPPORTED(cuGraphExecDestroy)
