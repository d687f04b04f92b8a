/* nvmlDeviceGetFieldValues. */
#include "stub.h"

Value stub_typed(int type, long long number) {
    Value value;
    memset(&value, 0xA5, sizeof value);  /* so that reading the wrong member shows */
    if (type == TYPE_DOUBLE)
        value.dVal = (double)number;
    else if (type == TYPE_UINT)
        value.uiVal = (unsigned)number;
    else if (type == TYPE_INT)
        value.siVal = (int)number;
    else
        value.ullVal = (unsigned long long)number;
    return value;
}

/* Like an H100 with NVLink that has never had a fault; LINK stands for each of its 18 links. */
enum { LINK = 0xFFFFFFFE, ALL_LINKS = 0xFFFFFFFF, LINKS = 18 };
static const Number defaults[] = {
    {1, 0, 1}, {3, 0, 0}, {5, 0, 0}, {74, 0, 0}, {76, 0, 0}, {91, 0, LINKS}, {94, 0, 0},
    {138, ALL_LINKS, 0}, {139, ALL_LINKS, 0}, {138, LINK, 0}, {139, LINK, 0}, {161, LINK, 0}, {162, LINK, 0}, {163, LINK, 0},
    {142, 0, 0}, {143, 0, 0}, {144, 0, 0}, {145, 0, 0}, {173, 0, 0}, {174, 0, 0}, {179, 0, 0}, {180, 0, 0},
    {185, 1, 90000}, {186, 1, 90000}, {185, 2, 20000}, {186, 2, 20000}, {187, 0, 200000}, {188, 0, 700000},
    {189, 0, 700000}, {193, 0, -8}, {194, 0, -2}, {195, 0, 0}, {196, 0, 0}, {197, 0, 0}, {198, 0, 0}, {230, 0, 0},
    {269, 0, 0}, {270, 0, 0}, {271, 0, 0},
};

static int is_link(const Number *row, unsigned scope) {
    return row->scope == LINK && scope < LINKS;
}

static struct { double millijoules, seconds; } energy[SLOTS];

static long long energy_millijoules(Gpu *gpu) {
    size_t slot = (size_t)(gpu - stub_gpus);
    double now = stub_monotonic_seconds();
    if (gpu->energy_grows && energy[slot].seconds > 0)
        energy[slot].millijoules += (double)gpu->power * (now - energy[slot].seconds);
    energy[slot].seconds = now;
    return gpu->energy + (long long)energy[slot].millijoules;
}

/* What the link, or all links, carried since the machine started, in KiB; `nvlink_grows` is KiB/s on a link. */
static long long carried(const Gpu *gpu, const FieldValue *field) {
    enum { THROUGHPUT_DATA_TX = 138, THROUGHPUT_DATA_RX = 139 };
    if (field->id != THROUGHPUT_DATA_TX && field->id != THROUGHPUT_DATA_RX)
        return 0;
    double rate = (double)gpu->nvlink_grows * (field->scope == ALL_LINKS ? LINKS : 1);
    return (long long)(stub_monotonic_seconds() * rate);
}

static int read_field(Gpu *gpu, FieldValue *field) {
    enum { ECC_DBE_VOL = 4, ECC_DBE_AGG = 6, MEMORY_TEMP = 82, ENERGY = 83, POWER_AVERAGE = 185, POWER_INSTANT = 186 };
    const Number rows[] = {
        {ECC_DBE_VOL, 0, gpu->ecc_volatile},
        {ECC_DBE_AGG, 0, gpu->ecc_aggregate},
        {MEMORY_TEMP, 0, gpu->memory_temperature},
        {ENERGY, 0, field->id == ENERGY ? energy_millijoules(gpu) : 0},
        {POWER_AVERAGE, 0, gpu->power},
        {POWER_INSTANT, 0, gpu->power},
    };
    char name[16];
    snprintf(name, sizeof name, "field.%u", field->id);
    field->value = stub_typed(TYPE_ULLONG, -1);  /* a failed entry's value is rubbish */
    if (stub_forced(gpu, name))
        return stub_forced(gpu, name);
    const long long *value = stub_number(&gpu->fields, field->id, field->scope);
    for (size_t i = 0; i < LENGTH(rows) && !value; i++)
        if (rows[i].id == field->id && rows[i].scope == field->scope)
            value = &rows[i].value;
    for (size_t i = 0; i < LENGTH(defaults) && !value; i++)
        if (defaults[i].id == field->id && (defaults[i].scope == field->scope || is_link(&defaults[i], field->scope)))
            value = &defaults[i].value;
    if (!value)
        return NOT_SUPPORTED;
    long long shown = *value + carried(gpu, field);
    field->type = shown < 0 ? TYPE_INT : shown <= UINT_MAX && field->id != ENERGY ? TYPE_UINT : TYPE_ULLONG;
    field->value = stub_typed(field->type, shown);
    return SUCCESS;
}

int nvmlDeviceGetFieldValues(Gpu *gpu, int size, FieldValue *fields) {
    ENTER(device, __func__, gpu);
    for (int i = 0; i < size; i++) {
        stub_spend_field(fields[i].id);
        fields[i].timestamp = (long long)stub_wall_microseconds();
        fields[i].code = read_field(gpu, &fields[i]);
    }
    return SUCCESS;
}
