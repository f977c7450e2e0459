/* A registry's answer 401: what the WWW-Authenticate header asks for. Pure, any thread; any bytes may come.
 *
 *     Bearer realm="https://auth.example/token",service="registry",scope="repository:a/b:pull"
 *     Basic realm="registry" */
#pragma once
#include <stdbool.h>
#include <stddef.h>

#define CHALLENGE_VALUE_MAX 1024

enum challenge_kind { CHALLENGE_BEARER, CHALLENGE_BASIC };
struct challenge {
        enum challenge_kind kind;
        char realm[CHALLENGE_VALUE_MAX];           /* BEARER: where tokens are, never empty */
        char service[CHALLENGE_VALUE_MAX], scope[CHALLENGE_VALUE_MAX];     /* "" without */
};
/* -EBADMSG: neither of the two, badly written, a value with control bytes or too long a value. */
int challenge_parse(const char *header, size_t n, struct challenge *ret);
