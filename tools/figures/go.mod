module github.com/fedhttp/fedhttp/tools/figures

go 1.26.0
