/* NVRTC, which adds a byte to the file CUDA_STUB_COMPILED for every source that it compiles. A source that it refuses ends the process: the
 * compiler's words on standard error, exit code 1. CubeCL keeps such a failure with the buffer that the kernel was to write until
 * somebody reads it, and a buffer that nobody reads hides it.
 * Only this function is here; a loader finds the others in the real library, which this one is linked with. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct program *Program;
typedef int (*Compile)(Program, int, const char *const *);
typedef int (*Size)(Program, size_t *);
typedef int (*Text)(Program, char *);

int nvrtcCompileProgram(Program program, int count, const char *const *options) {
    int code = ((Compile)dlsym(RTLD_NEXT, "nvrtcCompileProgram"))(program, count, options);
    if (code == 0) {
        const char *path = getenv("CUDA_STUB_COMPILED");
        FILE *compiled = path ? fopen(path, "a") : NULL;
        if (compiled) {
            fputc('.', compiled);
            fclose(compiled);
        }
        return 0;
    }
    size_t size = 0;
    char *log = NULL;
    if (((Size)dlsym(RTLD_NEXT, "nvrtcGetProgramLogSize"))(program, &size) == 0 && (log = calloc(size + 1, 1)) != NULL) {
        ((Text)dlsym(RTLD_NEXT, "nvrtcGetProgramLog"))(program, log);
    }
    fprintf(stderr, "nvrtc: refused: code %d for %s\n%.4000s\n", code, count > 0 ? options[0] : "no options", log ? log : "");
    _exit(1);
}
