terraform {
  required_version = ">= 1.4"

  # Address and credentials come from TF_HTTP_ADDRESS and its like: see README.md.
  backend "http" {}
}

locals {
  regions    = toset(["north", "east", "south", "west", "sea"])
  per_region = floor(var.size / length(local.regions))
  rest       = var.size - length(local.regions) * local.per_region
}

module "region" {
  source   = "./modules/region"
  for_each = local.regions

  name     = each.key
  size     = local.per_region
  revision = var.revision
}

# What five equal regions leave over, so that the count is exactly var.size.
resource "terraform_data" "rest" {
  count = local.rest
  input = { name = "rest-${count.index}" }
}
