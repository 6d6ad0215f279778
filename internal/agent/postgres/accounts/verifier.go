package accounts

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/text/secure/precis"
)

const scramIterations = 4096

// newVerifier is what PostgreSQL keeps of a password (RFC 5803).
func newVerifier(password string) (string, error) {
	salt := make([]byte, 16)
	_, _ = rand.Read(salt)
	return computeVerifier(password, salt, scramIterations)
}

func computeVerifier(password string, salt []byte, iterations int) (string, error) {
	// As PostgreSQL does: what cannot be normalised is taken as it is.
	normal, err := precis.OpaqueString.String(password)
	if err != nil {
		normal = password
	}
	salted, err := pbkdf2.Key(sha256.New, normal, salt, iterations, sha256.Size)
	if err != nil {
		return "", fmt.Errorf("derive the verifier: %w", err)
	}
	sign := func(key []byte, text string) []byte {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(sign(salted, "Client Key"))
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, b64(salt), b64(stored[:]), b64(sign(salted, "Server Key"))), nil
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
