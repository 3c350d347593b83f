package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// tlsFlags are what the flags are called that name files for TLS.
type tlsFlags struct{ ca, cert, key string }

// loadTLS reads the files of authorities, of our certificate and of its key, which
// may be the certificate's. An empty name stands for the system's authorities, or for
// no certificate. An error has the flag.
func loadTLS(flags tlsFlags, caFile, certFile, keyFile string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		pem, err := readPath(caFile, maxPEM, "name a file of the authorities' certificates alone")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flags.ca, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: %s has no certificate in PEM", flags.ca, caFile)
		}
	}
	if certFile != "" {
		certificate, err := loadPair(flags, certFile, keyFile)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

func loadPair(flags tlsFlags, certFile, keyFile string) (tls.Certificate, error) {
	cert, err := readPath(certFile, maxPEM, "name a file of our certificate and its chain alone")
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: %w", flags.cert, err)
	}
	key := cert // read once: it may be a pipe
	if keyFile != "" {
		if key, err = readPath(keyFile, maxPEM, "name a file of the key alone"); err != nil {
			return tls.Certificate{}, fmt.Errorf("%s: %w", flags.key, err)
		}
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		if keyFile == "" {
			err = fmt.Errorf("%s: %s: %w (its key is in the same file where %[1]s alone is given)", flags.cert, certFile, err)
		} else {
			err = fmt.Errorf("%s %s, %s %s: %w", flags.cert, certFile, flags.key, keyFile, err)
		}
	}
	return pair, err
}
