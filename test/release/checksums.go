package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
)

// fileDigest is the SHA-256 of a file, in hexadecimal digits.
func fileDigest(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// writeChecksums writes the digests of all files, as sha256sum --check reads them.
func (r *release) writeChecksums(context.Context) error {
	var text strings.Builder
	for _, name := range r.fileNames() {
		if name == checksumsFile {
			continue
		}
		sum, err := fileDigest(r.path(name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%s  %s\n", sum, name)
	}
	return r.writeText(checksumsFile, []byte(text.String()))
}
