package pki

import (
	"fmt"
	"io"
)

const (
	passwordLength   = 32
	passwordAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
)

// NewPassword draws 32 letters and digits, about 190 bits: safe in a URL, in a
// connection string and in SQL without quoting.
func NewPassword(rand io.Reader) (string, error) {
	// Bytes from here on are thrown away, or the first letters would be
	// likelier than the last.
	const limit = 256 - 256%len(passwordAlphabet)
	password := make([]byte, 0, passwordLength)
	draw := make([]byte, passwordLength)
	for {
		if _, err := io.ReadFull(rand, draw); err != nil {
			return "", fmt.Errorf("draw password: %w", err)
		}
		for _, b := range draw {
			if int(b) >= limit {
				continue
			}
			password = append(password, passwordAlphabet[int(b)%len(passwordAlphabet)])
			if len(password) == passwordLength {
				return string(password), nil
			}
		}
	}
}
