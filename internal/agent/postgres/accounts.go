package postgres

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-db/holdfast/internal/agent/postgres/accounts"
)

// passwordFile holds the owner's password.
const passwordFile = "app-password"

// readAccount is the account of the configuration, with the mounted password.
func (a *postgresAgent) readAccount() (accounts.Account, error) {
	config, _ := a.Config.Current()
	if config == nil {
		return accounts.Account{}, errors.New("no configuration yet")
	}
	password, err := os.ReadFile(filepath.Join(a.o.CredentialsDir, passwordFile))
	if err != nil {
		return accounts.Account{}, fmt.Errorf("read the owner's password: %w", err)
	}
	return accounts.Account{Database: config.Database, Owner: config.Owner, Password: strings.TrimRight(string(password), "\n")}, nil
}
