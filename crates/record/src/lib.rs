//! RecordBatch v2: layout, CRC, attributes, compression, validation, builder.
