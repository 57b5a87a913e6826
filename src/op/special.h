/* special.h - functions that C does not have, in double. Written once, as the formulas of ops.h:
 * compiled they are the reference's, as text (render/prelude.c, render/plain.c) they are in the
 * generated code, where floats go through them too. SPECIAL(word of formulas, name, (arguments),
 * body); the body uses functions of math.h only, no macro and no preprocessor line.
 */
/* clang-format off */

/* psi(x + 1) = psi(x) + 1 / x up to 10, then the series of Bernoulli's numbers (error 4e-17); below
 * 0 by reflection. Whole numbers there are poles of both signs: NaN. */
SPECIAL(DIGAMMA, digamma, (double x),
    double sum = 0, r, t;
    if (x == 0)
        return -1 / x;
    if (x < 0) {
        if (x == floor(x))
            return (x - x) / (x - x);
        r = x - rint(x);
        sum = -3.14159265358979323846 / tan(3.14159265358979323846 * r);
        x = 1 - x;
    }
    for (; x < 10; x += 1)
        sum -= 1 / x;
    t = 1 / (x * x);
    t *= 1.0 / 12 - t * (1.0 / 120 - t * (1.0 / 252 - t * (1.0 / 240 - t * (1.0 / 132 -
         t * (691.0 / 32760 - t / 12)))));
    return sum + log(x) - 0.5 / x - t;)

/* The sum of (q + k)^-s over k = 0, 1, ..: ten terms, and the rest by Euler and Maclaurin (error
 * 1e-17). With q = f - n below 0 and a whole s, the terms before f are those of 1 - f, up to 1 - q. */
SPECIAL(ZETA, zeta, (double s, double q),
    double from[3] = {q, 0, 0}, sign[3] = {1, 0, 0}, sum = 0;
    if (s == 1 || (s > 1 && q <= 0 && q == floor(q)))
        return -log(0.0);
    if (!(s > 1) || (q < 0 && s != floor(s)))
        return -log(0.0) + log(0.0);
    if (q < 0) {
        from[0] = q - floor(q);
        from[1] = ceil(q) - q;
        from[2] = 1 - q;
        sign[1] = fmod(s, 2) == 0 ? 1 : -1;
        sign[2] = -sign[1];
    }
    for (int i = 0; i < 3 && sign[i] != 0; i++) {
        double a = from[i], part = pow(a, -s), b = part, t, c = s, rest = 0;
        for (int k = 0; k < 10 && b > part * 1e-18; k++) {
            a += 1;
            b = pow(a, -s);
            part += b;
        }
        if (b > part * 1e-18) {
            const double over[8] = {12, -720, 30240, -1209600, 47900160, -1307674368000.0 / 691,
                                    74724249600, -10670622842880000.0 / 3617};
            part += b * a / (s - 1) - b / 2;
            t = b / a;
            for (int k = 0; k < 8; k++) {
                rest += c * t / over[k];
                c *= (s + 2 * k + 1) * (s + 2 * k + 2);
                t /= a * a;
            }
        }
        sum += sign[i] * (part + rest);
    }
    return sum;)

/* A guess (a series below 1/2, else from the tail's log) and two of Halley's steps, by erf or erfc,
 * whichever has the digits: the error of the guess, 2e-3, to the power of 9. */
SPECIAL(ERFINV, erfinv, (double y),
    double a = fabs(y), t = a * a, x, l, error;
    if (!(a < 1))
        return copysign(-log(1 - a), y);
    x = a * (0.88622692545275801 + t * (0.23201366653465444 + t * (0.12755617530559793 + t * 0.0865521292415475)));
    if (a >= 0.5) {
        l = log((1 - a) * (1 + a));
        t = 4.3307467508 + 0.5 * l;
        x = sqrt(sqrt(t * t - l / 0.147) - t);
    }
    for (int i = 0; i < 2; i++) {
        error = a < 0.5 ? erf(x) - a : (1 - a) - erfc(x);
        error *= 0.88622692545275801 * exp(x * x);
        x -= error / (1 + x * error);
    }
    return copysign(x, y);)
/* clang-format on */
