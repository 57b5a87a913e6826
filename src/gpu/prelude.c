/* prelude.c - what makes one text CUDA C and OpenCL C: names of the dialect, then the functions that
 * the kernels call, which are those of exported C (render/plain.c).
 *
 * A kernel's first argument is the device's memory, and each tensor is one more: in CUDA its
 * address, in OpenCL, where a program cannot make addresses, how far it is into the memory.
 */
#include "gpu/gpu.h"

/* clang-format off */
static const char cuda_text[] =
    "#ifdef __CUDACC__\n"
    "typedef signed char int8_t;\n"
    "typedef unsigned char uint8_t;\n"
    "typedef short int16_t;\n"
    "typedef unsigned short uint16_t;\n"
    "typedef int int32_t;\n"
    "typedef unsigned int uint32_t;\n"
    "typedef long long int64_t;\n"
    "typedef unsigned long long uint64_t;\n"
    "#define GLOBAL\n"
    "#define SHARED_POINTER const\n"
    "#define SHARED_PLACE\n"
    "#define SHARED __shared__ __align__(16)\n"
    "#define SHARED_MUCH(T, name, n) extern __shared__ __align__(16) T name[];\n"
    "/* 16 bytes from memory to shared memory, or zeros, that arrive some time later */\n"
    "#define COPY16(to, from, there) asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" \\\n"
    "    :: \"r\"((uint32_t)__cvta_generic_to_shared(to)), \"l\"(from), \"r\"((there) ? 16 : 0) : \"memory\");\n"
    "#define COMMIT() asm volatile(\"cp.async.commit_group;\" ::: \"memory\")\n"
    "#define ARRIVED(n) asm volatile(\"cp.async.wait_group %0;\" :: \"n\"(n) : \"memory\")\n"
    "#define BARRIER() __syncthreads()\n"
    "#define LOCAL ((int32_t)threadIdx.x)\n"
    "#define LOCALS ((int32_t)blockDim.x)\n"
    "#define ALL_GROUPS const int64_t group = blockIdx.x, groups = gridDim.x;\n"
    "#define TO_TEXT(x) #x\n"
    "#define UNROLL(n) _Pragma(TO_TEXT(unroll n))\n"
    "#define KERNEL(bounds, name, ...) extern \"C\" __global__ void __launch_bounds__ bounds name(char *m, __VA_ARGS__)\n"
    "#define KERNEL0(bounds, name) extern \"C\" __global__ void __launch_bounds__ bounds name(char *m)\n"
    "#define READ(T, v) const T *__restrict__ v\n"
    "#define LATE(T, v) const T *v\n"
    "#define SHARE(T, v) const T *v\n"
    "#define WRITE(T, v) T *v\n"
    "#define BIND(T, v)\n"
    "#define INFINITY __int_as_float(0x7f800000)\n"
    "#define NAN __int_as_float(0x7fffffff)\n"
    "#define AS_FLOAT(x) __uint_as_float(x)\n"
    "#define AS_BITS(x) __float_as_uint(x)\n";

static const char opencl_text[] =
    "#else\n"
    "#ifdef cl_khr_fp64\n"
    "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n"
    "#endif\n"
    "typedef char int8_t;\n"
    "typedef uchar uint8_t;\n"
    "typedef short int16_t;\n"
    "typedef ushort uint16_t;\n"
    "typedef int int32_t;\n"
    "typedef uint uint32_t;\n"
    "typedef long int64_t;\n"
    "typedef ulong uint64_t;\n"
    "#define GLOBAL __global\n"
    "#define SHARED_POINTER const __local\n"
    "#define SHARED_PLACE __local\n"
    "#define SHARED __local __attribute__((aligned(16)))\n"
    "#define SHARED_MUCH(T, name, n) SHARED T name[n];\n"
    "#define COPY16(to, from, there) *(__local uint4 *)(to) = (there) ? *(__global const uint4 *)(from) : (uint4)(0);\n"
    "#define COMMIT()\n"
    "#define ARRIVED(n)\n"
    "#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)\n"
    "#define LOCAL ((int32_t)get_local_id(0))\n"
    "#define LOCALS ((int32_t)get_local_size(0))\n"
    "#define ALL_GROUPS const int64_t group = get_group_id(0), groups = get_num_groups(0);\n"
    "#define UNROLL(n)\n"
    "#define KERNEL(bounds, name, ...) __kernel void name(__global char *m, __VA_ARGS__)\n"
    "#define KERNEL0(bounds, name) __kernel void name(__global char *m)\n"
    "#define READ(T, v) ulong v##_at\n"
    "#define LATE(T, v) ulong v##_at\n"
    "#define SHARE(T, v) ulong v##_at\n"
    "#define WRITE(T, v) ulong v##_at\n"
    "#define BIND(T, v) __global T *const v = (__global T *)(m + v##_at);\n"
    "#define AS_FLOAT(x) as_float(x)\n"
    "#define AS_BITS(x) as_uint(x)\n"
    "#define fabsf fabs\n"
    "#define floorf floor\n"
    "#define ceilf ceil\n"
    "#define rintf rint\n"
    "#define truncf trunc\n"
    "#define sqrtf sqrt\n"
    "#define expf exp\n"
    "#define expm1f expm1\n"
    "#define logf log\n"
    "#define log1pf log1p\n"
    "#define sinf sin\n"
    "#define cosf cos\n"
    "#define tanhf tanh\n"
    "#define erff erf\n"
    "#define powf pow\n"
    "#define atan2f atan2\n"
    "#define fmodf fmod\n"
    "static void copy_bytes(char *to, const char *from, int n)\n"
    "{\n"
    "    for (int i = 0; i < n; i++)\n"
    "        to[i] = from[i];\n"
    "}\n"
    "#define memcpy(to, from, n) copy_bytes((char *)(to), (const char *)(from), n)\n"
    "#endif\n";

static const char both_text[] =
    "#define INT64_MAX 0x7fffffffffffffffL\n"
    "#define INT64_MIN (-INT64_MAX - 1)\n"
    "/* four elements from shared memory, at a multiple of four */\n"
    "#define LOAD4(to, i, by, from) { const float4 four = *(SHARED_POINTER float4 *)(from); to[i] = four.x; \\\n"
    "    to[(i) + (by)] = four.y; to[(i) + 2 * (by)] = four.z; to[(i) + 3 * (by)] = four.w; }\n"
    "/* registers to shared memory, four in a vector of type T, */\n"
    "#define PUT_AS(T, to, from, i) { T four; four.x = from[i]; four.y = from[(i) + 1]; four.z = from[(i) + 2]; \\\n"
    "    four.w = from[(i) + 3]; *(SHARED_PLACE T *)(to) = four; }\n"
    "/* floats, or added to what is there */\n"
    "#define PUT1(to, from, i) *(to) = from[i];\n"
    "#define ADD1(to, from, i) *(to) += from[i];\n"
    "#define PUT2(to, from, i) { float2 two; two.x = from[i]; two.y = from[(i) + 1]; *(SHARED_PLACE float2 *)(to) = two; }\n"
    "#define ADD2(to, from, i) { float2 two = *(SHARED_PLACE float2 *)(to); two.x += from[i]; two.y += from[(i) + 1]; \\\n"
    "    *(SHARED_PLACE float2 *)(to) = two; }\n"
    "#define PUT4(to, from, i) PUT_AS(float4, to, from, i)\n"
    "#define ADD4(to, from, i) { float4 four = *(SHARED_PLACE float4 *)(to); four.x += from[i]; four.y += from[(i) + 1]; \\\n"
    "    four.z += from[(i) + 2]; four.w += from[(i) + 3]; *(SHARED_PLACE float4 *)(to) = four; }\n"
    "#define GROUP group\n"
    "#define GROUPS groups\n"
    "#define FIRST (GROUP * LOCALS + LOCAL)\n"
    "#define STEP (GROUPS * LOCALS)\n"
    "#define LITERAL(T, v, at) GLOBAL T *const v = (GLOBAL T *)(m + at);\n"
    "\n"
    "typedef struct ctx {\n"
    "    uint64_t seed, step; /* of the random generator */\n"
    "    uint64_t mb;         /* micro-batches so far */\n"
    "    uint64_t replica;\n"
    "    uint64_t at;         /* of the micro-batches that were sent together */\n"
    "    uint64_t stride;     /* of the step */\n"
    "} ctx;\n"
    "#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900\n"
    "/* The next kernel may come to the processors now; one that came early waits until the last has ended. */\n"
    "#define LET_NEXT asm volatile(\"griddepcontrol.launch_dependents;\");\n"
    "#define WAIT_LAST asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");\n"
    "#else\n"
    "#define LET_NEXT\n"
    "#define WAIT_LAST\n"
    "#endif\n"
    "#define CONTEXT GLOBAL const ctx *const c = (GLOBAL const ctx *)m; ALL_GROUPS\n"
    "static inline void tick(GLOBAL ctx *c)\n"
    "{\n"
    "    c->step += c->stride;\n"
    "    c->mb += 1;\n"
    "    c->at += 1;\n"
    "}\n"
    "#define TICK() tick((GLOBAL ctx *)m)\n";

static const char random_text[] =
    "\n"
    "static inline uint64_t scramble(uint64_t z)\n"
    "{\n"
    "    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;\n"
    "    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;\n"
    "    return z ^ (z >> 31);\n"
    "}\n"
    "/* uniform in [0,1): element i of a stream in this micro-batch */\n"
    "static inline float random_unit(GLOBAL const ctx *c, uint64_t stream, uint64_t i)\n"
    "{\n"
    "    const uint64_t key = scramble(scramble(c->seed + 0x9e3779b97f4a7c15u * (stream + 1)) +\n"
    "                                  0x9e3779b97f4a7c15u * c->step);\n"
    "\n"
    "    return (float)(scramble(key + 0x9e3779b97f4a7c15u * (i + 1)) >> 40) * 5.9604644775390625e-8f;\n"
    "}\n";

/* Up where u is below what is cut off, as a part of the step to the next half: op/random.c. */
static const char round_random_text[] =
    "\n"
    "static inline float round_random_f16(GLOBAL const ctx *c, uint64_t stream, uint64_t i, float x)\n"
    "{\n"
    "    const float u = random_unit(c, stream, i);\n"
    "    uint32_t b = AS_BITS(x), a = b & 0x7fffffff;\n"
    "    uint32_t up = (uint32_t)(u * 8192.0f) < (a & 0x1fff) ? 0x2000 : 0;\n"
    "    float steps = AS_FLOAT(a < 0x38800000 ? a : 0) * 16777216.0f; /* subnormal halves */\n"
    "    float down = (float)(int32_t)steps;\n"
    "    uint32_t small = AS_BITS((down + (u < steps - down ? 1.0f : 0.0f)) * 5.9604644775390625e-8f);\n"
    "    uint32_t r = a < 0x38800000 ? small : (a & 0xffffe000) + up;\n"
    "\n"
    "    r = r >= 0x47800000 ? 0x7f800000 : r;\n"
    "    return AS_FLOAT((a > 0x7f800000 ? 0x7fc00000 : r) | (b & 0x80000000));\n"
    "}\n"
    "static inline float round_random_bf16(GLOBAL const ctx *c, uint64_t stream, uint64_t i, float x)\n"
    "{\n"
    "    const float u = random_unit(c, stream, i);\n"
    "    uint32_t b = AS_BITS(x), a = b & 0x7fffffff;\n"
    "    uint32_t up = (uint32_t)(u * 65536.0f) < (a & 0xffff) ? 0x10000 : 0;\n"
    "\n"
    "    return AS_FLOAT((a > 0x7f800000 ? 0x7fc00000 : (a & 0xffff0000) + up) | (b & 0x80000000));\n"
    "}\n";

/* What the processor does in one instruction. */
static const char cuda_half_text[] =
    "\n"
    "#ifdef __CUDACC__\n"
    "static inline float quick_f16_to_f32(uint16_t x)\n"
    "{\n"
    "    float y;\n"
    "    asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x));\n"
    "    return y;\n"
    "}\n"
    "static inline uint16_t quick_f32_to_f16(float x)\n"
    "{\n"
    "    uint16_t y;\n"
    "    asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(x));\n"
    "    return y;\n"
    "}\n"
    "#define f16_to_f32 quick_f16_to_f32\n"
    "#define f32_to_f16 quick_f32_to_f16\n"
    "#endif\n";

/* 16 x 16 halves of shared memory to the registers of a warp, lane by lane the address of 8 of them;
 * 16 x 8 results more. */
static const char tensor_text[] =
    "\n"
    "#ifdef __CUDACC__\n"
    "static inline void load_matrices(uint32_t *to, const uint16_t *from)\n"
    "{\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                 : \"=r\"(to[0]), \"=r\"(to[1]), \"=r\"(to[2]), \"=r\"(to[3])\n"
    "                 : \"r\"((uint32_t)__cvta_generic_to_shared(from)));\n"
    "}\n"
    "static inline void load_turned(uint32_t *to, const uint16_t *from)\n"
    "{\n"
    "    asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\"\n"
    "                 : \"=r\"(to[0]), \"=r\"(to[1]), \"=r\"(to[2]), \"=r\"(to[3])\n"
    "                 : \"r\"((uint32_t)__cvta_generic_to_shared(from)));\n"
    "}\n"
    "#define MULTIPLY(T) \\\n"
    "    static inline void multiply_##T(float *c, const uint32_t *a, const uint32_t *b) \\\n"
    "    { \\\n"
    "        asm(\"mma.sync.aligned.m16n8k16.row.col.f32.\" #T \".\" #T \".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, \" \\\n"
    "            \"{%0, %1, %2, %3};\" \\\n"
    "            : \"+f\"(c[0]), \"+f\"(c[1]), \"+f\"(c[2]), \"+f\"(c[3]) \\\n"
    "            : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1])); \\\n"
    "    }\n"
    "MULTIPLY(bf16)\n"
    "MULTIPLY(f16)\n"
    "#endif\n";
/* clang-format on */

static bool needs(const ts_render *r, const char *what)
{
    for (int i = 0; i < r->nneeds; i++)
        if (!strcmp(r->needs[i], what))
            return true;
    return false;
}

void ts_gpu_prelude(ts_render *r, const char *code, ts_text *out)
{
    ts_text_printf(out,
                   "/* Generated by Tessera " TS_VERSION ": CUDA C and OpenCL C in one text. */\n");
    ts_text_printf(out, "%s", cuda_text);
    ts_text_printf(out, "%s", opencl_text);
    ts_text_printf(out, "%s", both_text);
    if (needs(r, "random"))
        ts_text_printf(out, "%s", random_text);
    if (needs(r, "round random"))
        ts_text_printf(out, "%s", round_random_text);
    ts_plain_prelude(r, code, out);
    if (needs(r, "tensor"))
        ts_text_printf(out, "%s", tensor_text);
    if (needs(r, "half"))
        ts_text_add(out, cuda_half_text, sizeof(cuda_half_text) - 1);
}
