package accounts

import (
	"strings"
	"testing"
)

func TestFirstDatabase(t *testing.T) {
	declared := Account{"shop", "shopper", "s3cret"}
	cases := []struct {
		name, comment string
		want          FirstDatabase
		account       Account
	}{
		{"new data takes the declared names", "", FirstDatabase{}, declared},
		{"somebody else's comment is none", "mine", FirstDatabase{}, declared},
		{"an older agent recorded no names", Bootstrapped, FirstDatabase{Done: true}, declared},
		{"names that the API would not take are none", FirstDatabase{Database: "app", Owner: strings.Repeat("x", 64)}.FormatComment(), FirstDatabase{Done: true}, declared},
		{"what was recorded counts", FirstDatabase{Database: "app", Owner: "app"}.FormatComment(),
			FirstDatabase{true, "app", "app"}, Account{"app", "app", "s3cret"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := parseFirstDatabase(c.comment)
			if got != c.want || got.chooseAccount(declared) != c.account {
				t.Errorf("%+v, account %+v", got, got.chooseAccount(declared))
			}
		})
	}
}
