/* NCCL beside the stub of the driver: the calls that CubeCL's CUDA runtime makes to sum tensors between the GPUs of one process
 * (cubecl-cuda 0.11.3 through cudarc 0.19.10). Device memory is the host's, so a sum is a sum: rank by rank, in f32, rounded at the end
 * where the numbers are bf16. A call returns when all ranks have made it.
 *
 * Refused on all ranks: calls that differ in count, type or operation, as they would corrupt or hang; anything but a sum of f32 or bf16.
 * A rank that does not come ends the process.
 *
 * Environment:
 *   CUDA_STUB_COLLECTIVES  file to which each call is appended, a JSON object per line, once it is done
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define UNUSED __attribute__((unused))

enum { SUCCESS = 0, INVALID_ARGUMENT = 4 };
enum { FLOAT32 = 7, BFLOAT16 = 9 };
enum { SUM = 0, JOIN = -1 };
enum { MAX_RANKS = 16, PATIENCE_S = 120 };

typedef struct { char internal[128]; } Id;

struct call {
    const void *from;
    void *to;
    size_t count;
    int type;
    int operation;
};

/* Ranks that share an identifier. */
struct group {
    struct group *next;
    Id id;
    int ranks;
    int come; /* To the call under way. */
    uint64_t calls;
    struct call call[MAX_RANKS];
    int result; /* Of the last call. */
    pthread_mutex_t lock;
    pthread_cond_t done;
};

struct communicator {
    struct group *group;
    int rank;
};

static struct group *groups;
static pthread_mutex_t groups_lock = PTHREAD_MUTEX_INITIALIZER;

int ncclGetVersion(int *version) {
    *version = 22703;
    return SUCCESS;
}

int ncclGetUniqueId(Id *id) {
    static _Atomic int made;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "stub %d of process %d", made++, getpid());
    return SUCCESS;
}

static float number(const void *numbers, int type, size_t place) {
    if (type == FLOAT32)
        return ((const float *)numbers)[place];
    uint32_t bits = (uint32_t)((const uint16_t *)numbers)[place] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void set(void *numbers, int type, size_t place, float value) {
    if (type == FLOAT32) {
        ((float *)numbers)[place] = value;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1); /* To the nearest, of two equally near to the even one. */
    ((uint16_t *)numbers)[place] = (uint16_t)(bits >> 16);
}

static void write_calls(const struct group *group) {
    const char *path = getenv("CUDA_STUB_COLLECTIVES");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    for (int rank = 0; file >= 0 && rank < group->ranks; rank++) {
        const struct call *call = &group->call[rank];
        dprintf(file, "{\"rank\": %d, \"ranks\": %d, \"call\": %lu, \"type\": \"%s\", \"count\": %zu, \"in_place\": %s}\n", rank,
                group->ranks, group->calls, call->type == FLOAT32 ? "f32" : "bf16", call->count,
                call->from == call->to ? "true" : "false");
    }
    if (path && file < 0)
        fprintf(stderr, "cuda stub: CUDA_STUB_COLLECTIVES=%s cannot be written: %m\n", path);
    else if (path)
        close(file);
}

/* Runs a call that all ranks have made. */
static int run(const struct group *group) {
    const struct call *first = &group->call[0];
    if (first->operation == JOIN)
        return SUCCESS;
    bool known = first->operation == SUM && (first->type == FLOAT32 || first->type == BFLOAT16);
    for (int rank = 0; rank < group->ranks; rank++) {
        const struct call *call = &group->call[rank];
        if (!known || call->count != first->count || call->type != first->type || call->operation != first->operation) {
            fprintf(stderr, "cuda stub: refused: rank %d reduces %zu numbers of type %d by %d, rank 0 %zu of %d by %d\n", rank,
                    call->count, call->type, call->operation, first->count, first->type, first->operation);
            return INVALID_ARGUMENT;
        }
    }
    for (size_t place = 0; place < first->count; place++) {
        float sum = number(first->from, first->type, place);
        for (int rank = 1; rank < group->ranks; rank++)
            sum += number(group->call[rank].from, first->type, place);
        for (int rank = 0; rank < group->ranks; rank++)
            set(group->call[rank].to, first->type, place, sum);
    }
    write_calls(group);
    return SUCCESS;
}

/* Makes a call of a rank: the last to come runs it, the others wait. */
static int meet(struct group *group, int rank, struct call call) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    pthread_mutex_lock(&group->lock);
    group->call[rank] = call;
    uint64_t number = group->calls;
    if (++group->come == group->ranks) {
        group->result = run(group);
        group->come = 0;
        group->calls++;
        pthread_cond_broadcast(&group->done);
    }
    while (group->calls == number) {
        if (pthread_cond_timedwait(&group->done, &group->lock, &until) == ETIMEDOUT) {
            fprintf(stderr, "cuda stub: refused: %d of %d ranks came to call %lu\n", group->come, group->ranks, number);
            _exit(1);
        }
    }
    int result = group->result;
    pthread_mutex_unlock(&group->lock);
    return result;
}

int ncclCommInitRank(struct communicator **made, int ranks, Id id, int rank) {
    if (ranks < 1 || ranks > MAX_RANKS || rank < 0 || rank >= ranks) {
        fprintf(stderr, "cuda stub: refused: rank %d of %d\n", rank, ranks);
        return INVALID_ARGUMENT;
    }
    pthread_mutex_lock(&groups_lock);
    struct group *group = groups;
    while (group && memcmp(&group->id, &id, sizeof id) != 0)
        group = group->next;
    if (!group) {
        group = calloc(1, sizeof *group);
        group->next = groups;
        group->id = id;
        group->ranks = ranks;
        pthread_mutex_init(&group->lock, NULL);
        pthread_cond_init(&group->done, NULL);
        groups = group;
    }
    pthread_mutex_unlock(&groups_lock);
    *made = malloc(sizeof **made);
    **made = (struct communicator){group, rank};
    return meet(group, rank, (struct call){.operation = JOIN});
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, struct communicator *communicator,
                  UNUSED void *stream) {
    return meet(communicator->group, communicator->rank, (struct call){from, to, count, type, operation});
}
