package accounts

import (
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/xdg-go/scram"
	"github.com/xdg-go/stringprep"
	"golang.org/x/text/unicode/norm"
)

const scramIterations = 4096

// newVerifier is what PostgreSQL keeps of a password (RFC 5803).
func newVerifier(password string) (string, error) {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt)
	return computeVerifier(password, salt, scramIterations)
}

func computeVerifier(password string, salt []byte, iterations int) (string, error) {
	// Normalized here: the library fails where PostgreSQL takes a password as it is.
	client, err := scram.SHA256.NewClientUnprepped("", normalizePassword(password), "")
	if err != nil {
		return "", fmt.Errorf("derive the verifier: %w", err)
	}
	keys, err := client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: string(salt), Iters: iterations})
	if err != nil {
		return "", fmt.Errorf("derive the verifier: %w", err)
	}
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, b64(salt), b64(keys.StoredKey), b64(keys.ServerKey)), nil
}

// normalizePassword is PostgreSQL's SASLprep (src/common/saslprep.c), as the
// server and libpq apply it. It differs from RFC 4013 in three ways: a password
// that may not be used is taken as it is, what may be used is checked before the
// normalization, and U+200B becomes a space rather than nothing.
func normalizePassword(password string) string {
	mapAndCheck := stringprep.SASLprep
	mapAndCheck.Normalize = false
	mapped, err := mapAndCheck.Prepare(strings.ReplaceAll(password, "\u200b", " "))
	if err != nil || mapped == "" {
		return password
	}
	return norm.NFKC.String(mapped)
}

// verifyPassword says whether a verifier is that of the password.
func verifyPassword(verifier, password string) bool {
	rest, found := strings.CutPrefix(verifier, "SCRAM-SHA-256$")
	if !found {
		return false
	}
	head, _, _ := strings.Cut(rest, "$")
	count, encoded, _ := strings.Cut(head, ":")
	iterations, err := strconv.Atoi(count)
	if err != nil || iterations < 1 || iterations > 1<<20 {
		return false
	}
	salt, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return false
	}
	again, err := computeVerifier(password, salt, iterations)
	return err == nil && hmac.Equal([]byte(again), []byte(verifier))
}
