/* contract.c - register-blocked contractions. */
#include "render/render.h"

bool ts_render_contract(ts_render *r, const ts_kernel *k, ts_cut *cut)
{
    (void)r, (void)k, (void)cut;
    return false;
}
