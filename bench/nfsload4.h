/*
 * The same workloads over NFSv4.1 (RFC 8881), with --vers 4: one session, a slot of it for each slot of nfsload, no
 * back channel and so no delegations. Included by nfsload.c, whose calls and invariants these are.
 *
 *   create-*   OPEN (create) + GETFH, WRITE by its stateid, CLOSE: three requests for a file
 *   lookup     LOOKUP + GETATTR in one request
 *   the rest   one operation behind SEQUENCE and PUTFH
 */

enum { O_CLOSE = 4, O_COMMIT = 5, O_CREATE = 6, O_GETATTR = 9, O_GETFH = 10, O_LOOKUP = 15, O_OPEN = 18, O_PUTFH = 22, O_PUTROOTFH = 24, O_READ = 25, O_REMOVE = 28, O_WRITE = 38, O_EXCHANGE_ID = 42, O_CREATE_SESSION = 43, O_SEQUENCE = 53, O_RECLAIM_COMPLETE = 58 };
enum { NFS4ERR_NOENT = 2, NFS4ERR_EXIST = 17 };

typedef struct {
    uint8_t data[16];
} stateid4;

static uint8_t session4[16];
static uint64_t client4;
static uint32_t sequence4[SLOTS_MAX];
static stateid4 file_stateid, slot_stateids[SLOTS_MAX];

static void put_fixed(out *o, const void *data, size_t len)
{
    memcpy(o->p, data, len);
    o->p += len;
}

/* A request of `ops` operations behind SEQUENCE. */
static out compound4(slot *s, uint32_t ops)
{
    uint32_t at = (uint32_t)(s - slots);
    out o = call(s, NFS, 1);
    u32(&o, 0);
    u32(&o, 1);
    u32(&o, ops + 1);
    u32(&o, O_SEQUENCE);
    put_fixed(&o, session4, 16);
    u32(&o, ++sequence4[at]);
    u32(&o, at);
    u32(&o, opt.depth - 1);
    u32(&o, 0);
    return o;
}

/* Without a session. */
static out bare4(uint32_t op)
{
    out o = call(&slots[0], NFS, 1);
    u32(&o, 0);
    u32(&o, 1);
    u32(&o, 1);
    u32(&o, op);
    return o;
}

static out at_file4(slot *s, const handle *fh, uint32_t ops)
{
    out o = compound4(s, ops + 1);
    u32(&o, O_PUTFH);
    put_handle(&o, fh);
    return o;
}

/* The result of the next operation; its status. */
static uint32_t result4(in *i, uint32_t op)
{
    uint32_t number = g32(i), status = g32(i);
    if (number != op)
        die("operation %u was answered for %u", number, op);
    return status;
}

static void good4(in *i, uint32_t op)
{
    uint32_t status = result4(i, op);
    if (status)
        die("%s: operation %u: status %u", opt.workload, op, status);
}

/* COMPOUND4res up to the first operation behind SEQUENCE. */
static void begin4(in *i)
{
    g32(i);
    skip(i, (g32(i) + 3) / 4 * 4);
    g32(i);
    good4(i, O_SEQUENCE);
    skip(i, 36);
}

static void bare_result4(in *i, uint32_t op)
{
    g32(i);
    skip(i, (g32(i) + 3) / 4 * 4);
    g32(i);
    good4(i, op);
}

static void put_mode4(out *o, uint32_t mode)
{
    u32(o, 2); /* the bitmap: mode alone */
    u32(o, 0);
    u32(o, 1u << (33 - 32));
    u32(o, 4);
    u32(o, mode);
}

static void put_open4(out *o, const char *name)
{
    u32(o, O_OPEN);
    u32(o, 0);
    u32(o, 3); /* reads and writes, denies nothing */
    u32(o, 0);
    u64(o, client4);
    put_string(o, "nfsload");
    u32(o, 1); /* creates, UNCHECKED */
    u32(o, 0);
    put_mode4(o, 0644);
    u32(o, 0); /* by name */
    put_string(o, name);
}

static stateid4 g_opened4(in *i)
{
    stateid4 s;
    good4(i, O_OPEN);
    const uint8_t *at = i->p;
    skip(i, 16 + 20 + 4);
    memcpy(s.data, at, 16);
    skip(i, g32(i) * 4u);
    uint32_t delegation = g32(i);
    if (delegation != 0 && delegation != 3)
        die("a delegation that nobody can recall");
    if (delegation == 3) {
        uint32_t why = g32(i);
        if (why == 1 || why == 2)
            g32(i);
    }
    return s;
}

static void put_channel4(out *o)
{
    u32(o, 0);
    u32(o, XFER_MAX + 65536);
    u32(o, XFER_MAX + 65536);
    u32(o, 4096);
    u32(o, 16);
    u32(o, opt.depth);
    u32(o, 0);
}

static void begin_session4(void)
{
    char owner[64];
    sprintf(owner, "nfsload-%d", (int)getpid());
    out o = bare4(O_EXCHANGE_ID);
    u64(&o, now_ns());
    put_string(&o, owner);
    u32(&o, 0);
    u32(&o, 0);
    u32(&o, 0);
    in i = alone(o);
    bare_result4(&i, O_EXCHANGE_ID);
    client4 = g64(&i);
    uint32_t sequence = g32(&i);
    o = bare4(O_CREATE_SESSION);
    u64(&o, client4);
    u32(&o, sequence);
    u32(&o, 0);
    put_channel4(&o);
    put_channel4(&o);
    u32(&o, 0x40000000);
    u32(&o, 1);
    u32(&o, 0);
    i = alone(o);
    bare_result4(&i, O_CREATE_SESSION);
    memcpy(session4, i.p, 16);
    skip(&i, 16 + 8);
    uint32_t fore[6];
    for (int k = 0; k < 6; k++)
        fore[k] = g32(&i);
    while (opt.xfer + 4096 > (fore[1] < fore[2] ? fore[1] : fore[2]) && opt.xfer > 8)
        opt.xfer /= 2;
    if (fore[5] < opt.depth)
        die("the server gives %u slots, not %u", fore[5], opt.depth);
    o = compound4(&slots[0], 1);
    u32(&o, O_RECLAIM_COMPLETE);
    u32(&o, 0);
    i = alone(o);
    begin4(&i);
    good4(&i, O_RECLAIM_COMPLETE);
}

/* The handle of the export, name by name from the root. */
static handle walk4(const char *path)
{
    char names[256], *name, *rest;
    uint32_t count = 0;
    snprintf(names, sizeof names, "%s", path);
    for (name = strtok_r(names, "/", &rest); name; name = strtok_r(NULL, "/", &rest))
        count++;
    out o = compound4(&slots[0], count + 2);
    u32(&o, O_PUTROOTFH);
    snprintf(names, sizeof names, "%s", path);
    for (name = strtok_r(names, "/", &rest); name; name = strtok_r(NULL, "/", &rest)) {
        u32(&o, O_LOOKUP);
        put_string(&o, name);
    }
    u32(&o, O_GETFH);
    in i = alone(o);
    begin4(&i);
    good4(&i, O_PUTROOTFH);
    while (count--)
        good4(&i, O_LOOKUP);
    good4(&i, O_GETFH);
    return g_handle(&i);
}

static handle lookup4(const handle *in_dir, const char *name)
{
    out o = at_file4(&slots[0], in_dir, 2);
    u32(&o, O_LOOKUP);
    put_string(&o, name);
    u32(&o, O_GETFH);
    in i = alone(o);
    begin4(&i);
    good4(&i, O_PUTFH);
    good4(&i, O_LOOKUP);
    good4(&i, O_GETFH);
    return g_handle(&i);
}

static handle made_dir4(const handle *in_dir, const char *name)
{
    out o = at_file4(&slots[0], in_dir, 1);
    u32(&o, O_CREATE);
    u32(&o, 2);
    put_string(&o, name);
    put_mode4(&o, 0755);
    in i = alone(o);
    begin4(&i);
    good4(&i, O_PUTFH);
    uint32_t status = result4(&i, O_CREATE);
    if (status && status != NFS4ERR_EXIST)
        die("making %s: status %u", name, status);
    return lookup4(in_dir, name);
}

static handle made_file4(const handle *in_dir, const char *name)
{
    out o = at_file4(&slots[0], in_dir, 2);
    put_open4(&o, name);
    u32(&o, O_GETFH);
    in i = alone(o);
    begin4(&i);
    good4(&i, O_PUTFH);
    file_stateid = g_opened4(&i);
    good4(&i, O_GETFH);
    return g_handle(&i);
}

static void prepare4(void)
{
    connect_to(opt.port);
    begin_session4();
    root = walk4(opt.export);
}

/* Removes a file of the root, there or not. */
static void drop4(void)
{
    prepare4();
    out o = at_file4(&slots[0], &root, 1);
    u32(&o, O_REMOVE);
    put_string(&o, opt.path);
    in i = alone(o);
    begin4(&i);
    good4(&i, O_PUTFH);
    uint32_t status = result4(&i, O_REMOVE);
    if (status && status != NFS4ERR_NOENT)
        die("REMOVE %s: status %u", opt.path, status);
}

/* ---- requests of the workloads ---- */

static void send_read4(slot *s, uint64_t offset)
{
    out o = at_file4(s, &file, 1);
    u32(&o, O_READ);
    put_fixed(&o, file_stateid.data, 16);
    u64(&o, offset);
    u32(&o, opt.xfer);
    enqueue(s, o);
}

static void send_write4(slot *s, const handle *fh, const stateid4 *by, uint64_t offset, uint32_t len, uint32_t stable)
{
    out o = at_file4(s, fh, 1);
    u32(&o, O_WRITE);
    put_fixed(&o, by->data, 16);
    u64(&o, offset);
    u32(&o, stable);
    u32(&o, len);
    s->payload = is("seqwrite") ? content_at(offset) : content(s->item);
    s->payload_len = len;
    enqueue(s, o);
}

static void send_name4(slot *s)
{
    char name[64];
    file_name(name, opt.files ? s->item % opt.files : s->item);
    int creates = is("create-sync") || is("create-unstable"), removes = is("remove");
    out o = at_file4(s, &dir, removes ? 1 : 2);
    if (creates) {
        put_open4(&o, name);
        u32(&o, O_GETFH);
    } else {
        u32(&o, removes ? O_REMOVE : O_LOOKUP);
        put_string(&o, name);
    }
    if (is("lookup")) {
        u32(&o, O_GETATTR);
        u32(&o, 2); /* type, change, size, fileid; mode, links, owner, group, time of change */
        u32(&o, 1u << 1 | 1u << 3 | 1u << 4 | 1u << 20);
        u32(&o, 1u << 1 | 1u << 3 | 1u << 4 | 1u << 5 | 1u << 21);
    }
    enqueue(s, o);
}

static void send_commit4(slot *s, const handle *fh)
{
    out o = at_file4(s, fh, 1);
    u32(&o, O_COMMIT);
    u64(&o, 0);
    u32(&o, 0);
    enqueue(s, o);
}

static void start_item4(slot *s)
{
    if (is("seqread"))
        send_read4(s, s->item * opt.xfer);
    else if (is("randread"))
        send_read4(s, random_offset(s->item));
    else if (is("seqwrite"))
        send_write4(s, &file, &file_stateid, s->item * opt.xfer, opt.xfer, UNSTABLE);
    else if (is("randwrite"))
        send_write4(s, &file, &file_stateid, random_offset(s->item), opt.xfer, UNSTABLE);
    else if (is("create-sync") || is("create-unstable") || is("lookup") || is("remove"))
        send_name4(s);
    else
        die("unknown workload %s", opt.workload);
}

static void verifier4(in *i)
{
    uint64_t verifier = g64(i);
    if (have_verifier && verifier != write_verifier)
        die("the write verifier changed: the server restarted");
    have_verifier = 1;
    write_verifier = verifier;
}

static void on_written4(in *i, uint32_t len)
{
    good4(i, O_WRITE);
    uint32_t count = g32(i);
    g32(i);
    if (count != len)
        die("WRITE of %u bytes took %u", len, count);
    verifier4(i);
    bytes_moved += len;
}

/* A file is made, written and closed; the clock of its item goes on. */
static void on_create4(slot *s, in *i)
{
    stateid4 *by = &slot_stateids[s - slots];
    uint64_t started = s->started_ns;
    switch (s->stage++) {
    case 0:
        *by = g_opened4(i);
        good4(i, O_GETFH);
        s->fh = g_handle(i);
        send_write4(s, &s->fh, by, 0, PAGE, is("create-sync") ? FILE_SYNC : UNSTABLE);
        break;
    case 1: {
        on_written4(i, PAGE);
        out o = at_file4(s, &s->fh, 1);
        u32(&o, O_CLOSE);
        u32(&o, 0);
        put_fixed(&o, by->data, 16);
        enqueue(s, o);
        break;
    }
    default:
        good4(i, O_CLOSE);
        finish_item(s);
        return;
    }
    s->started_ns = started;
}

static void on_reply4(slot *s, in *i)
{
    begin4(i);
    good4(i, O_PUTFH);
    if (is("seqread") || is("randread")) {
        good4(i, O_READ);
        uint32_t eof = g32(i), len = g32(i);
        if ((len != opt.xfer && !eof) || len == 0)
            die("READ of %u bytes answered %u", opt.xfer, len);
        const uint8_t *data = i->p;
        skip(i, len);
        if (opt.verify)
            check_data(s, data, len);
        bytes_moved += len;
        finish_item(s);
    } else if (is("seqwrite") || is("randwrite")) {
        on_written4(i, opt.xfer);
        finish_item(s);
    } else if (is("create-sync") || is("create-unstable")) {
        on_create4(s, i);
    } else if (is("lookup")) {
        good4(i, O_LOOKUP);
        good4(i, O_GETATTR);
        finish_item(s);
    } else {
        good4(i, O_REMOVE);
        finish_item(s);
    }
}
