/* The elements of an XML text, for reports that hostile code may have written. Only what reports use: elements, attributes, the five named
 * entities and numbers; comments, CDATA and processing instructions are passed over; a document type is refused, so there is nothing to
 * expand. Roots may follow each other. Nothing is copied but attributes; no recursion.
 *
 *     struct xml x = XML(p, n);
 *     while ((r = xml_next(&x)) > 0)
 *             if (r == XML_OPEN && slice_is(x.name, "testcase")) xml_attribute(&x, "name", buf, sizeof(buf)); */
#pragma once
#include "score/text.h"

#define XML_DEPTH_MAX 64

enum { XML_END, XML_OPEN, XML_CLOSE };
struct xml {
        const char *p, *end;
        size_t depth;                   /* of the element that was opened or closed; 1: a root */
        struct slice name, attributes;  /* of the last event; attributes raw, of XML_OPEN only */
        bool empty, closing;            /* <name/>: its XML_CLOSE follows; the depth falls after it */
};
#define XML(p_, n_) {.p = (p_), .end = (p_) + (n_)}
/* An event, XML_END, or -EBADMSG (-E2BIG: deeper than XML_DEPTH_MAX). */
int xml_next(struct xml *x);
/* The attribute's text without NULs into ret, cut to its size at a character; false, and "": there is none. */
bool xml_attribute(const struct xml *x, const char *name, char *ret, size_t size);
