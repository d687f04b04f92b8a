variable "name" {
  description = "Name of the role, the instance and its security group."
  type        = string
  default     = "gpuwatch-controller"

  validation {
    condition     = can(regex("^[A-Za-z0-9-]{1,48}$", var.name))
    error_message = "name takes 1 to 48 letters, digits and hyphens."
  }
}

variable "fleet" {
  description = "Value of the tag gpuwatch:fleet. Permissions that change something hold for machines with this tag only."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", var.fleet))
    error_message = "fleet takes 1 to 63 letters, digits, dots, underscores and hyphens, and begins with a letter or digit."
  }
}

variable "permissions" {
  description = "What the role may do: observe (look only), reclaim (also stop and terminate), scale (also launch)."
  type        = string
  default     = "observe"

  validation {
    condition     = contains(["observe", "reclaim", "scale"], var.permissions)
    error_message = "permissions is observe, reclaim or scale."
  }
}

variable "more_permissions" {
  description = "Further policies: shield (scale-in protection), assume (other accounts), secrets (of this service's own names), scan (other regions), quotas, keys (their ages), prices (live ones), disks (with KMS keys of your own)."
  type        = set(string)
  default     = []

  validation {
    condition     = length(setsubtract(var.more_permissions, ["shield", "assume", "secrets", "scan", "quotas", "keys", "prices", "disks"])) == 0
    error_message = "more_permissions is made of shield, assume, secrets, scan, quotas, keys, prices and disks."
  }
}

variable "policies" {
  description = "Folder with the IAM policies. Null: the repository's iam/. Without the repository: what `gpuwatch export iam` wrote."
  type        = string
  default     = null
}

variable "create_instance" {
  description = "Whether an instance for the controller is made. Without it the module makes the role and its profile only."
  type        = bool
  default     = true
}

variable "package_urls" {
  description = "HTTPS addresses of gpuwatch_*.deb and gpuwatch-controller_*.deb for this instance, in this order, each with its SHA-256 sum."
  type        = list(object({ url = string, sha256 = string }))
  default     = []

  validation {
    condition     = alltrue([for each in var.package_urls : can(regex("^https://[^\\s'\"]+\\.deb$", each.url))])
    error_message = "Each url of package_urls begins with https:// and ends with .deb."
  }

  validation {
    condition     = alltrue([for each in var.package_urls : can(regex("^[0-9a-f]{64}$", each.sha256))])
    error_message = "Each sha256 of package_urls has 64 hexadecimal digits: see SHA256SUMS of the release."
  }
}

variable "configuration" {
  description = "Content of /etc/gpuwatch/gpuwatch.yaml. It is readable in the instance's user data: put no secret into it."
  type        = string
  default     = null
}

variable "regions" {
  description = "Regions that the controller looks at, if `configuration` is not set."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for each in var.regions : can(regex("^[a-z]{2}(-[a-z]+)+-[0-9]$", each))])
    error_message = "regions has names such as eu-central-1."
  }
}

variable "ami" {
  description = "Image of the instance: Debian 12 or newer, or Ubuntu 24.04 or newer."
  type        = string
  default     = null

  validation {
    condition     = var.ami == null || can(regex("^ami-[0-9a-f]+$", var.ami))
    error_message = "ami begins with ami-."
  }
}

variable "instance_type" {
  description = "Type of the instance. A fleet of some hundred machines needs 2 GiB of memory."
  type        = string
  default     = "t3.small"
}

variable "subnet_id" {
  description = "Subnet of the instance. It needs a route to the AWS API (NAT or endpoints) and to the agents."
  type        = string
  default     = null

  validation {
    condition     = var.subnet_id == null || can(regex("^subnet-[0-9a-f]+$", var.subnet_id))
    error_message = "subnet_id begins with subnet-."
  }
}

variable "disk_gib" {
  description = "Size of the disk, which holds the ledger."
  type        = number
  default     = 20

  validation {
    condition     = var.disk_gib >= 8 && var.disk_gib <= 1000
    error_message = "disk_gib is 8 to 1000."
  }
}

variable "kms_key_arn" {
  description = "KMS key of the disk. Null: the account's default key for EBS."
  type        = string
  default     = null
}

variable "permissions_boundary" {
  description = "ARN of a permissions boundary for the role, where the organisation asks for one."
  type        = string
  default     = null
}

variable "session_manager" {
  description = "Whether the role gets AmazonSSMManagedInstanceCore, to log in by Session Manager. There is no SSH port."
  type        = bool
  default     = true
}

variable "tags" {
  description = "Tags of everything that is made. The tag gpuwatch:fleet is for GPU machines, not for this instance."
  type        = map(string)
  default     = {}

  validation {
    condition     = !anytrue([for key in keys(var.tags) : startswith(lower(key), "gpuwatch")])
    error_message = "Tags that begin with gpuwatch are for the machines of a fleet, not for its controller."
  }
}
