package wire

// BackupPath is the address of a copy of the data file.
const BackupPath = "/v1/backup"

// HeaderSHA256 is the digest of an answer that is one file, in hexadecimal.
const HeaderSHA256 = "KL-SHA256"
