package backups

import (
	"fmt"
	"strings"
)

// credentialNames are what a Secret with the credentials of a store holds, by the
// scheme of the store's URL.
var credentialNames = map[string]string{
	"s3":     "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
	"gs":     "credentials.json",
	"azblob": "AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, or AZURE_STORAGE_SAS_TOKEN",
}

// DescribeMissingCredentials says that the Secret with the credentials of a store is
// missing, and what it must hold.
func DescribeMissingCredentials(field, secret, url string) string {
	scheme, _, _ := strings.Cut(url, "://")
	holds := credentialNames[scheme]
	if holds != "" {
		holds = " with " + holds
	}
	return fmt.Sprintf("%s: there is no Secret %q in this namespace: create it%s", field, secret, holds)
}
