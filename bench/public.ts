/** The public names again, for files below a package.json of their own, where the package's own name does not resolve. */
export * from 'holdfast'
