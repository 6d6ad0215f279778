package accounts

import (
	"strings"
	"testing"
)

func TestVerifier(t *testing.T) {
	verifier, err := newVerifier("s3cret")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(verifier, "s3cret") {
		t.Error("the verifier holds the password")
	}
	if !verifyPassword(verifier, "s3cret") || verifyPassword(verifier, "s3creT") {
		t.Errorf("%s does not tell passwords apart", verifier)
	}
	for _, bad := range []string{"", "md5abc", "SCRAM-SHA-256$", "SCRAM-SHA-256$4096:!!$x:y", "SCRAM-SHA-256$999999999:AAAA$x:y"} {
		if verifyPassword(bad, "s3cret") {
			t.Errorf("%q verifies", bad)
		}
	}
}

// The verifier of RFC 7677's example, as PostgreSQL stores it.
func TestVerifierOfExample(t *testing.T) {
	salt := []byte{0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36, 0xfa, 0x81}
	got, err := computeVerifier("pencil", salt, 4096)
	want := "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
	if err != nil || got != want {
		t.Errorf("got %s, %v", got, err)
	}
}

// TestRealVerifiers compares many more with PostgreSQL.
func TestNormalizePassword(t *testing.T) {
	for password, want := range map[string]string{
		"s3cret": "s3cret", "I\u00adX": "IX", "\ufb01sh": "fish", "a\u3000b": "a b", "a\u200bb": "a b", "e\u0301": "\u00e9",
		"\x01": "\x01", "\xff": "\xff", "": "", "\u00ad": "\u00ad", "\U0001f600": "\U0001f600", "\U0001f130": "\U0001f130", "\u0340": "\u0340", "\u06271": "\u06271",
	} {
		if got := normalizePassword(password); got != want {
			t.Errorf("%+q becomes %+q, not %+q", password, got, want)
		}
	}
}
